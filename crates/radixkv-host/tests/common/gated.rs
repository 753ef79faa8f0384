//! A mover that waits for the test.

use std::sync::{
    Mutex,
    mpsc::{self, Receiver, Sender},
};

use radixkv_host::{MoveError, Mover, ToDevice, ToHost};

/// A mover that tells when it is called, and goes on when it may.
pub struct Gated {
    called: Sender<()>,
    go: Mutex<Receiver<()>>,
}

pub fn gated() -> (Gated, Receiver<()>, Sender<()>) {
    let ((called, is_called), (go, gate)) = (mpsc::channel(), mpsc::channel());
    (Gated { called, go: Mutex::new(gate) }, is_called, go)
}

impl Gated {
    fn pass(&self) -> Result<(), MoveError> {
        self.called.send(()).expect("the test waits");
        self.go.lock().expect("no panic").recv().map_err(MoveError::new)
    }
}

impl Mover for Gated {
    fn offload(&self, _copies: &mut [ToHost<'_>]) -> Result<(), MoveError> {
        self.pass()
    }

    fn onboard(&self, _copies: &[ToDevice<'_>]) -> Result<(), MoveError> {
        self.pass()
    }
}

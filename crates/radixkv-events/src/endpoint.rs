//! Endpoints of publishers, such as `tcp://host:5557`.

use zeromq::{Endpoint, Host};

/// A TCP port.
type Port = u16;

/// An error: the text is not a valid endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint:?} is not an endpoint, such as tcp://127.0.0.1:5557")]
pub struct EndpointError {
    /// The text.
    pub endpoint: Box<str>,
}

/// Parses an endpoint into host and port. The host `*` means every address of this machine.
pub(crate) fn parse(endpoint: &str) -> Result<(Host, Port), EndpointError> {
    let refused = || EndpointError { endpoint: endpoint.into() };
    let spelled = match endpoint.strip_prefix("tcp://*:") {
        Some(port) => format!("tcp://0.0.0.0:{port}"),
        None => endpoint.to_owned(),
    };
    match spelled.parse() {
        Ok(Endpoint::Tcp(host, port)) if !host.to_string().contains(['/', ' ']) => Ok((host, port)),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_of_tcp_and_have_a_port() {
        let parsed = |endpoint| parse(endpoint).map(|(host, port)| (host.to_string(), port)).unwrap();
        assert_eq!(parsed("tcp://*:5557"), ("0.0.0.0".to_owned(), 5557));
        assert_eq!(parsed("tcp://[::1]:7"), ("::1".to_owned(), 7));
        for wrong in ["", "tcp://", "tcp://host", "tcp://host:70000", "udp://host:1", "ipc:///a", "host:5557"] {
            let error = parse(wrong).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{wrong:?} is not an endpoint")), "{error}");
        }
    }
}

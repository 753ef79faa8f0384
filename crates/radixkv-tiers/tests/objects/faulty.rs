//! An object store in memory that does something else when it is told to.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use radixkv_tiers::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};

/// What it does instead of what it is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    Generic,
    Denied,
    Hang,
    Panic,
    /// The body of an object breaks off.
    HalfBody,
    /// Always this object.
    Other(Path),
    /// An object is said to be one byte shorter than it is.
    SizeLies,
    /// The body of an object does not end where it should, and its range is said to be longer.
    Endless,
}

#[derive(Debug)]
pub(crate) struct Faulty {
    memory: InMemory,
    fault: Mutex<Option<Fault>>,
    /// The parts of endless bodies that were read.
    parts: Arc<AtomicUsize>,
}

/// The parts of an endless body: all have this length, and there is an end, because a test ends.
const PART: &[u8] = &[0; 1024];
const PARTS: usize = 1 << 16;

fn generic() -> Error {
    Error::Generic { store: "faulty", source: "as told".into() }
}

impl Faulty {
    pub(crate) fn new() -> Self {
        Self { memory: InMemory::new(), fault: Mutex::new(None), parts: Arc::default() }
    }

    /// How many bytes of endless bodies were read since the last call.
    pub(crate) fn endless_bytes(&self) -> usize {
        self.parts.swap(0, Relaxed) * PART.len()
    }

    pub(crate) fn becomes(&self, fault: impl Into<Option<Fault>>) {
        *self.fault.lock().unwrap() = fault.into();
    }

    async fn act(&self) -> Result<Option<Fault>> {
        let fault = self.fault.lock().unwrap().clone();
        match fault {
            Some(Fault::Generic) => Err(generic()),
            Some(Fault::Denied) => Err(Error::PermissionDenied { path: String::new(), source: "as told".into() }),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic) => panic!("as told"),
            other => Ok(other),
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.act().await?;
        self.memory.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, at: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.memory.put_multipart_opts(at, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.act().await? {
            Some(Fault::Other(other)) => self.memory.get_opts(&other, options).await,
            Some(Fault::SizeLies) => {
                let mut result = self.memory.get_opts(location, options).await?;
                result.meta.size -= 1;
                Ok(result)
            }
            Some(Fault::Endless) => {
                let mut result = self.memory.get_opts(location, options).await?;
                let parts = Arc::clone(&self.parts);
                let count = move |_| {
                    parts.fetch_add(1, Relaxed);
                    Ok(PART.into())
                };
                result.payload = GetResultPayload::Stream(stream::iter((0..PARTS).map(count)).boxed());
                result.range = 0..1 << 40;
                Ok(result)
            }
            Some(Fault::HalfBody) => {
                let mut result = self.memory.get_opts(location, options).await?;
                let GetResultPayload::Stream(whole) = result.payload;
                let half = whole.map(|part| part.map(|part| part.slice(..part.len() / 2)));
                result.payload = GetResultPayload::Stream(half.chain(stream::iter([Err(generic())])).boxed());
                Ok(result)
            }
            _ => self.memory.get_opts(location, options).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.memory.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.memory.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.memory.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.memory.copy_opts(from, to, options).await
    }
}

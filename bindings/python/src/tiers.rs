//! Parses the settings of the tiers below a region or a host tier, and opens the tiers. Settings
//! are JSON-like dicts.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use radixkv_tiers::{Buffer, FileTier, Layout, OpenError, RegionTier, Tier};

use crate::cache::duration;
use crate::digests::errors;
use crate::given::refusal;
use crate::numbers::{Integer, integer};

/// The parsed settings of a tier.
pub(crate) struct Settings {
    kind: Kind,
    timeout: Option<Duration>,
}

enum Kind {
    Files {
        folder: PathBuf,
        bytes: u64,
        threads: Option<usize>,
        direct_io: Option<bool>,
    },
    #[cfg(feature = "redis")]
    Redis {
        url: String,
        prefix: String,
        connections: Option<usize>,
    },
    #[cfg(feature = "object-store")]
    Objects {
        url: String,
        options: std::collections::HashMap<String, String>,
        concurrency: Option<usize>,
    },
    Region {
        path: PathBuf,
        blocks: u32,
    },
}

/// The kind of level above the tiers. It determines where its blocks are in a store, and which
/// types of tiers are accepted.
pub(crate) enum Above<'a> {
    /// A namespace of a region, which uses a part of each store (by its name).
    Region(&'a str),
    /// A host tier, which uses whole stores.
    Host,
}

impl Settings {
    /// Parses the settings of the tier at index `at` of the list.
    pub(crate) fn of(given: &Bound<'_, PyAny>, at: usize, above: &Above<'_>) -> PyResult<Self> {
        let fields = Fields::of(given, at)?;
        let kind = fields.text("type")?;
        let kind = match &*kind {
            "files" => Kind::Files {
                folder: fields.text("folder")?.into(),
                bytes: fields.number("bytes")?.ok_or_else(|| fields.missing("bytes"))?,
                threads: fields.size("threads")?,
                direct_io: fields.flag("direct_io")?,
            },
            #[cfg(feature = "redis")]
            "redis" => Kind::Redis {
                url: fields.text("url")?,
                prefix: fields.text_or("prefix", "radixkv")?,
                connections: fields.size("connections")?,
            },
            #[cfg(feature = "object-store")]
            "objects" => Kind::Objects {
                url: fields.text("url")?,
                options: fields.texts("options")?,
                concurrency: fields.size("concurrency")?,
            },
            #[cfg(not(feature = "redis"))]
            "redis" => return Err(not_built(at, &kind, "redis")),
            #[cfg(not(feature = "object-store"))]
            "objects" => return Err(not_built(at, &kind, "object-store")),
            "region" if matches!(above, Above::Host) => {
                let blocks = fields.number("blocks")?.ok_or_else(|| fields.missing("blocks"))?;
                let refused = |_| PyValueError::new_err(format!("blocks of tiers[{at}] is {blocks}: too many"));
                Kind::Region { path: fields.text("path")?.into(), blocks: blocks.try_into().map_err(refused)? }
            }
            _ => {
                let region = if matches!(above, Above::Host) { ", \"region\"" } else { "" };
                let message = format!(
                    "tiers[{at}] is of type {kind:?}: accepted are \"files\"{region}, \"redis\" and \"objects\""
                );
                return Err(errors::region("unknown_tier", message, vec![]));
            }
        };
        let timeout = fields.take("timeout")?.map(|given| duration(&given, "timeout", false)).transpose()?;
        fields.end()?;
        Ok(Self { kind, timeout })
    }

    /// Opens the tier for at most `most` blocks in flight. Returns its type and the tier.
    pub(crate) fn open<B: Buffer>(
        self,
        above: &Above<'_>,
        layout: &Layout,
        most: usize,
    ) -> Result<(&'static str, Opened<B>), OpenError> {
        let (layout, timeout) = (layout.clone(), self.timeout);
        Ok(match self.kind {
            Kind::Files { folder, bytes, threads, direct_io } => {
                let folder = match above {
                    Above::Region(namespace) => folder.join(file_name(namespace)),
                    Above::Host => folder,
                };
                let mut tier = FileTier::new(folder, layout, bytes).max_in_flight(most);
                tier = timeout.into_iter().fold(tier, FileTier::timeout);
                tier = threads.into_iter().fold(tier, FileTier::threads);
                ("files", Opened::Queued(direct_io.into_iter().fold(tier, FileTier::direct_io).open()?))
            }
            #[cfg(feature = "redis")]
            Kind::Redis { url, prefix, connections } => {
                use radixkv_tiers::RedisTier;
                let prefix = match above {
                    Above::Region(namespace) => format!("{prefix}:{namespace}"),
                    Above::Host => prefix,
                };
                let mut tier = RedisTier::new(url, prefix, layout).max_in_flight(most);
                tier = timeout.into_iter().fold(tier, RedisTier::timeout);
                ("redis", Opened::Queued(connections.into_iter().fold(tier, RedisTier::connections).open()?))
            }
            #[cfg(feature = "object-store")]
            Kind::Objects { url, options, concurrency } => {
                use radixkv_tiers::ObjectTier;
                let (store, path) = object_store_at(&url, options)?;
                let prefix = match above {
                    Above::Region(namespace) => format!("{path}/{}", file_name(namespace)),
                    Above::Host => path,
                };
                let mut tier = ObjectTier::new(store, prefix.trim_start_matches('/'), layout).max_in_flight(most);
                tier = timeout.into_iter().fold(tier, ObjectTier::timeout);
                ("objects", Opened::Queued(concurrency.into_iter().fold(tier, ObjectTier::concurrency).open()?))
            }
            Kind::Region { path, blocks } => {
                ("region", Opened::Region(Box::new(RegionTier::open_or_create(path, layout, blocks)?)))
            }
        })
    }
}

/// An open tier.
pub(crate) enum Opened<B: Buffer> {
    /// A tier that executes batches on its own threads.
    Queued(Tier<B>),
    Region(Box<RegionTier<B>>),
}

#[cfg(not(all(feature = "redis", feature = "object-store")))]
fn not_built(at: usize, kind: &str, feature: &'static str) -> PyErr {
    let message = format!("tiers[{at}] is of type {kind:?}: this wheel was built without `{feature}`");
    errors::region("not_built", message, vec![("feature", feature.into())])
}

#[cfg(feature = "object-store")]
fn object_store_at(
    url: &str,
    options: std::collections::HashMap<String, String>,
) -> Result<(std::sync::Arc<dyn object_store::ObjectStore>, String), OpenError> {
    // The error does not contain the address, which may have a password.
    let refused = |error| OpenError::Io { place: "the object store".to_owned(), source: error };
    let parsed = url::Url::parse(url).map_err(|error| refused(std::io::Error::other(error)))?;
    let (store, path) =
        object_store::parse_url_opts(&parsed, options).map_err(|error| refused(std::io::Error::other(error)))?;
    Ok((store.into(), path.to_string()))
}

/// Converts a namespace's name to a folder name. If two names differ only in replaced characters,
/// the layouts of their stores differ, so the second is refused.
fn file_name(namespace: &str) -> String {
    let kept = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    namespace.chars().map(kept).collect()
}

/// The fields of a settings dict. Each field is taken out; an unknown one that is left is an error.
struct Fields<'py> {
    fields: Bound<'py, PyDict>,
    at: usize,
}

impl<'py> Fields<'py> {
    fn of(given: &Bound<'py, PyAny>, at: usize) -> PyResult<Self> {
        let py = given.py();
        let is_refusal =
            |error: &PyErr| error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyValueError>(py);
        let fields = match py.get_type::<PyDict>().call1((given,)) {
            Ok(dict) => dict.cast_into::<PyDict>()?,
            // An object with `keys` is a mapping, so its own code has raised the exception.
            Err(error) if !is_refusal(&error) || given.hasattr("keys")? => return Err(error),
            Err(_) => {
                let message = |text: &str| format!("tiers[{at}] is {text}: a tier must be a dict with a \"type\"");
                return Err(refusal(given, |text| PyTypeError::new_err(message(text))));
            }
        };
        Ok(Self { fields, at })
    }

    fn take(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(value) = self.fields.get_item(name)? else { return Ok(None) };
        self.fields.del_item(name)?;
        Ok(Some(value).filter(|value| !value.is_none()))
    }

    fn wrong(&self, name: &str, value: &Bound<'_, PyAny>, kind: &str) -> PyErr {
        refusal(value, |text| PyTypeError::new_err(self.wrong_text(name, text, kind)))
    }

    fn wrong_text(&self, name: &str, value: &str, kind: &str) -> String {
        format!("{name} of tiers[{}] is {value}: it must be {kind}", self.at)
    }

    fn missing(&self, name: &str) -> PyErr {
        PyTypeError::new_err(format!("tiers[{}] has no {name:?}", self.at))
    }

    fn text(&self, name: &str) -> PyResult<String> {
        let value = self.take(name)?.ok_or_else(|| self.missing(name))?;
        value.extract().map_err(|_| self.wrong(name, &value, "a str"))
    }

    fn number(&self, name: &str) -> PyResult<Option<u64>> {
        let Some(value) = self.take(name)? else { return Ok(None) };
        let message = |text: &str| self.wrong_text(name, text, &format!("an int from {}", u64::RANGE));
        integer(&value).map(Some).map_err(|refused| refused.error(&value, message))
    }

    fn size(&self, name: &str) -> PyResult<Option<usize>> {
        Ok(self.number(name)?.map(|number| number as usize))
    }

    fn flag(&self, name: &str) -> PyResult<Option<bool>> {
        let Some(value) = self.take(name)? else { return Ok(None) };
        value.extract().map(Some).map_err(|_| self.wrong(name, &value, "a bool"))
    }

    #[cfg(feature = "redis")]
    fn text_or(&self, name: &str, default: &str) -> PyResult<String> {
        let Some(value) = self.take(name)? else { return Ok(default.to_owned()) };
        value.extract().map_err(|_| self.wrong(name, &value, "a str"))
    }

    #[cfg(feature = "object-store")]
    fn texts(&self, name: &str) -> PyResult<std::collections::HashMap<String, String>> {
        let Some(value) = self.take(name)? else { return Ok(Default::default()) };
        value.extract().map_err(|_| self.wrong(name, &value, "a dict from str to str"))
    }

    fn end(&self) -> PyResult<()> {
        match self.fields.keys().iter().next() {
            None => Ok(()),
            Some(name) => {
                let message = |text: &str| format!("tiers[{}] has an unknown field {text:?}", self.at);
                Err(refusal(&name, |text| PyTypeError::new_err(message(text))))
            }
        }
    }
}

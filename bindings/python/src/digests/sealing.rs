//! The key of an encrypted namespace. Without the feature `encryption`, every key is refused.

use std::sync::Arc;

use pyo3::prelude::*;
use radixkv_region::{DigestBlocks, DigestRegion, Namespace, NamespaceError};
use radixkv_tiers::Layout;

/// The key of an encrypted namespace.
#[cfg(feature = "encryption")]
pub(super) struct Key(super::seals::CountedKey);
#[cfg(not(feature = "encryption"))]
pub(super) enum Key {}

#[cfg(feature = "encryption")]
impl Key {
    pub(super) fn of(given: &[u8]) -> PyResult<Self> {
        let wrong = |_| {
            pyo3::exceptions::PyValueError::new_err(format!("encryption_key has {} bytes: 32 are needed", given.len()))
        };
        Ok(Self(super::seals::CountedKey::new(given.try_into().map_err(wrong)?)))
    }

    /// How often all stores of this process have encrypted a block with the key.
    pub(super) fn seals(&self) -> u64 {
        self.0.key.seals()
    }

    pub(super) fn open(
        key: Option<&Self>,
        region: &Arc<DigestRegion>,
        namespace: &Namespace,
    ) -> Result<DigestBlocks, NamespaceError> {
        match key {
            Some(key) => region.sealed_namespace(namespace, key.0.key.clone()),
            None => region.namespace(namespace),
        }
    }

    pub(super) fn seal(key: Option<&Self>, layout: Layout) -> Layout {
        match key {
            Some(key) => layout.encrypted(key.0.key.clone()),
            None => layout,
        }
    }
}

#[cfg(not(feature = "encryption"))]
impl Key {
    pub(super) fn of(_: &[u8]) -> PyResult<Self> {
        let message = "encryption_key is given: this wheel was built without `encryption`";
        Err(super::errors::region("not_built", message, vec![("feature", "encryption".into())]))
    }

    pub(super) fn seals(&self) -> u64 {
        match *self {}
    }

    pub(super) fn open(
        _: Option<&Self>,
        region: &Arc<DigestRegion>,
        namespace: &Namespace,
    ) -> Result<DigestBlocks, NamespaceError> {
        region.namespace(namespace)
    }

    pub(super) fn seal(_: Option<&Self>, layout: Layout) -> Layout {
        layout
    }
}

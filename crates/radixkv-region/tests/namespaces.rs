//! Checks of namespaces that add nothing.
#![cfg(not(radixkv_loom))]

use std::sync::Arc;

use radixkv_region::{DigestLayout, DigestRegion, Memory, Namespace, NamespaceError};

fn region() -> Arc<DigestRegion> {
    let layout = DigestLayout::new(64, 4);
    let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
    Arc::new(DigestRegion::format(memory, &layout).expect("formatted"))
}

fn namespace(name: impl Into<String>) -> Namespace {
    Namespace::new(name, 32, 64).model("a model").dtype("bf16")
}

#[test]
fn a_check_answers_as_opening_does_and_adds_nothing() {
    let region = region();
    let refused = |namespace: &Namespace, is_encrypted| {
        let before = region.census().namespaces;
        let refused = region.check_namespace(namespace, is_encrypted).expect_err("refused");
        assert_eq!(region.census().namespaces, before);
        if !is_encrypted {
            assert_eq!(region.namespace(namespace).expect_err("refused"), refused);
        }
        refused
    };
    assert_eq!(region.check_namespace(&namespace("one"), false), Ok(()));
    assert_eq!(region.check_namespace(&namespace("one"), true), Ok(()));
    assert!(region.census().namespaces.is_empty());
    region.namespace(&namespace("one")).expect("opened");
    assert_eq!(region.check_namespace(&namespace("one"), false), Ok(()));
    let other = refused(&namespace("one").dtype("fp8"), false);
    assert_eq!(
        other.to_string(),
        r#"dtype is "bf16" in the region, "fp8" was requested: use another name for the namespace"#
    );
    assert!(matches!(refused(&namespace("one"), true), NamespaceError::Mismatch { field: "encryption", .. }));
    assert!(matches!(refused(&namespace("m".repeat(121)), false), NamespaceError::TextTooLong { field: "name", .. }));
    assert!(matches!(refused(&Namespace::new("two", 32, 65), false), NamespaceError::BlockBytes { got: 65, max: 64 }));
    let max = (0..).find(|number| region.namespace(&namespace(number.to_string())).is_err()).expect("a limit") + 1;
    assert_eq!(refused(&namespace("two"), false), NamespaceError::TooMany { max });
    assert_eq!(region.check_namespace(&namespace("one"), false), Ok(()), "it is one of them");
}

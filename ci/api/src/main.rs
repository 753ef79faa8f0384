//! Prints the public interface of the packages whose rustdoc JSON files are given, one item a line.

use std::env;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    for json in env::args_os().skip(1) {
        let api = public_api::Builder::from_rustdoc_json(&json)
            .omit_blanket_impls(true)
            .omit_auto_derived_impls(true)
            .omit_auto_trait_impls(true)
            .build()?;
        println!("# {}\n", Path::new(&json).file_stem().unwrap_or_default().display());
        api.items().for_each(|item| println!("{item}"));
        println!();
    }
    Ok(())
}

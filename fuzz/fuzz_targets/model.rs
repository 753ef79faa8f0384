#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| radixkv_fuzz::model::run(data));

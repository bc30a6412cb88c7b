#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| toolhold_fuzz::intake::run(data));

#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| toolhold_fuzz::schema_cost::run(data));

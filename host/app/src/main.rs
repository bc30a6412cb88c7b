//! `toolhold`, from the command line.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    toolhold::main()
}

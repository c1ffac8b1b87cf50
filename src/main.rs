fn main() -> std::process::ExitCode {
    creel::cli::main()
}

//! `orchestrator`: arguments, settings, telemetry, runtime, exit code. Everything else is in [`orchestrator::cli`].

use anyhow::Context as _;
use clap::Parser as _;
use orchestrator::cli::{Cli, Exit};
use orchestrator::telemetry;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let asked_for = !error.use_stderr();
            return match (error.print(), asked_for) {
                (Ok(()), true) => Exit::Done.into(),
                (Ok(()) | Err(_), _) => Exit::Usage.into(),
            };
        }
    };
    let config = match cli.config() {
        Ok(config) => config,
        Err(error) => return report(&anyhow::Error::new(error), Exit::Usage),
    };
    let telemetry = match telemetry::start("orchestrator", config.log_format, &config.log) {
        Ok(telemetry) => telemetry,
        Err(error) => return report(&anyhow::Error::new(error).context("log"), Exit::Usage),
    };
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")
        .map(|runtime| runtime.block_on(cli.run(config)));
    telemetry.finish();
    match outcome {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(error)) if error.is_closed_pipe() => Exit::Done.into(),
        Ok(Err(error)) => {
            let exit = error.exit();
            report(&anyhow::Error::new(error), exit)
        }
        Err(error) => report(&error, Exit::Failed),
    }
}

fn report(error: &anyhow::Error, exit: Exit) -> ExitCode {
    eprintln!("orchestrator: {error:#}");
    exit.into()
}

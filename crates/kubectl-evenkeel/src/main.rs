//! `kubectl evenkeel`: a kubectl plugin that reports the state of clusters and the reasons for it, previews edits, and
//! runs simple operations. Each verb has its own module. All data is read with the permissions of the user: the status
//! of the resource, the decision log, and the metrics of the members.

mod advice;
mod args;
mod complete;
mod connection;
mod decision_log;
mod error;
mod etcdctl;
mod logs;
mod member_metrics;
mod move_leader;
mod operator_status;
mod output;
mod pause;
mod plan;
mod reference;
mod report;
mod restart;
mod status;
mod terminal;
mod why;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Verb};
use connection::Connection;
use error::CliError;
use logs::LogOptions;
use output::OutputOptions;
use terminal::Terminal;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Verb::Complete { words } = &args.verb {
        complete::run(&args.connection, words).await;
        return ExitCode::SUCCESS;
    }
    if let Verb::Reference { page } = &args.verb {
        print!("{}", reference::markdown(*page));
        return ExitCode::SUCCESS;
    }
    match run(&args).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_code)
        }
    }
}

async fn run(args: &Args) -> Result<u8, CliError> {
    let terminal = Terminal::new(args.connection.color);
    let output = |format| OutputOptions { format, terminal };
    let connection = Connection::open(&args.connection).await?;
    match &args.verb {
        Verb::Status {
            target,
            all_namespaces,
            output: format,
        } => {
            if *all_namespaces {
                status::run_all(&connection, output(*format)).await
            } else {
                status::run(&connection, target, output(*format)).await
            }
        }
        Verb::Why {
            target,
            last,
            facts,
            output: format,
        } => {
            let options = why::WhyOptions {
                max_decisions: *last,
                include_facts: *facts,
            };
            why::run(&connection, target, options, output(*format)).await
        }
        Verb::Plan {
            target,
            file,
            all,
            output: format,
        } => {
            let options = plan::PlanOptions {
                file: file.as_deref(),
                include_bookkeeping: *all,
            };
            plan::run(&connection, target, options, output(*format)).await
        }
        Verb::Etcdctl {
            cluster,
            member,
            arguments,
        } => etcdctl::run(&connection, cluster, member.as_deref(), arguments).await,
        Verb::Logs {
            target,
            follow,
            tail,
            since,
            previous,
        } => {
            let options = LogOptions {
                follow: *follow,
                tail: *tail,
                since_seconds: *since,
                previous: *previous,
            };
            logs::run(&connection, target, &options, terminal).await
        }
        Verb::MoveLeader { target, to } => {
            move_leader::run(&connection, target, to.as_deref()).await
        }
        Verb::Restart { target } => restart::run(&connection, target).await,
        Verb::Pause { target } => pause::run(&connection, target, true).await,
        Verb::Resume { target } => pause::run(&connection, target, false).await,
        // `main` handles these without a connection.
        Verb::Complete { .. } | Verb::Reference { .. } => Ok(0),
    }
}

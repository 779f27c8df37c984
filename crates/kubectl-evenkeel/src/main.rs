//! `kubectl evenkeel`: a plugin of kubectl that tells how clusters are, why, and what can be done. One file a verb; what it
//! tells comes from the resource's status, the log of decisions and the members themselves, as the user may see them.

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
use connection::Reached;
use error::Trouble;
use logs::Lines;
use terminal::Screen;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Verb::Complete { words } = &args.verb {
        complete::run(&args.reach, words).await;
        return ExitCode::SUCCESS;
    }
    if let Verb::Reference { of } = &args.verb {
        print!("{}", reference::markdown(*of));
        return ExitCode::SUCCESS;
    }
    match run(&args).await {
        Ok(code) => ExitCode::from(code),
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::from(trouble.code)
        }
    }
}

async fn run(args: &Args) -> Result<u8, Trouble> {
    let screen = Screen::new(args.reach.color);
    let reached = Reached::by(&args.reach).await?;
    match &args.verb {
        Verb::Status {
            which,
            all_namespaces,
            output,
        } => status::run(&reached, which, *all_namespaces, (*output, screen)).await,
        Verb::Why {
            which,
            last,
            facts,
            output,
        } => {
            let extent = why::Extent {
                last: *last,
                facts: *facts,
            };
            why::run(&reached, which, extent, (*output, screen)).await
        }
        Verb::Plan {
            which,
            file,
            all,
            output,
        } => {
            let asked = plan::Asked {
                file: file.as_deref(),
                all: *all,
            };
            plan::run(&reached, which, asked, (*output, screen)).await
        }
        Verb::Etcdctl {
            cluster,
            member,
            arguments,
        } => etcdctl::run(&reached, cluster, member.as_deref(), arguments).await,
        Verb::Logs {
            which,
            follow,
            tail,
            since,
            previous,
        } => {
            let lines = Lines {
                follow: *follow,
                tail: *tail,
                since: *since,
                previous: *previous,
            };
            logs::run(&reached, which, &lines, screen).await
        }
        Verb::MoveLeader { which, to } => move_leader::run(&reached, which, to.as_deref()).await,
        Verb::Restart { which } => restart::run(&reached, which).await,
        Verb::Pause { which } => pause::run(&reached, which, true).await,
        Verb::Resume { which } => pause::run(&reached, which, false).await,
        // They were answered before anything else was done.
        Verb::Complete { .. } | Verb::Reference { .. } => Ok(0),
    }
}

//! `kubectl evenkeel`: a kubectl plugin that reports the state of clusters and the reasons for it, previews edits, and
//! runs simple operations. Each verb has its own module. All data is read with the permissions of the user: the status
//! of the resource, the decision log, and the metrics of the members.

mod advice;
mod args;
mod assess;
mod backup;
mod cluster_table;
mod commands;
mod complete;
mod connection;
mod decision_log;
mod effect;
mod error;
mod etcdctl;
mod health;
mod kubectl_error;
mod live;
mod live_leader;
mod logs;
mod member_metrics;
mod member_table;
mod move_leader;
mod operation_text;
mod operator_status;
mod output;
mod pause;
mod permission;
mod plan;
mod problems;
mod reference;
mod report;
mod report_details;
mod request_layer;
mod restart;
#[cfg(test)]
mod scene;
mod status;
mod status_text;
mod terminal;
mod usage;
mod version;
mod watch;
mod why;
mod why_text;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use args::{Args, BackupsArgs, RequestArgs, RestoreArgs, RestoreVerb, TextFormat, Verb};
use backup::create::BackupOptions;
use backup::from_store::FromStoreOptions;
use backup::list::BackupsOptions;
use backup::restore;
use backup::restore::create::{RequestOptions, RestoreOptions};
use backup::restore::list::RestoresOptions;
use connection::Connection;
use error::CliError;
use logs::LogOptions;
use output::OutputOptions;
use terminal::Terminal;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage::report(&error).await,
    };
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
    if let Verb::Version {
        client,
        output: format,
    } = &args.verb
    {
        let output = OutputOptions::new(*format, terminal);
        return version::run(&args.connection, *client, output).await;
    }
    let connection = Connection::open(&args.connection).await?;
    let terminal = terminal.with_namespaces(&connection.context_namespace, &connection.namespace);
    run_verb(&args.verb, &connection, terminal)
        .await
        .map_err(|error| error.with_commands(terminal))
}

/// Runs a verb that needs a connection.
async fn run_verb(
    verb: &Verb,
    connection: &Connection,
    terminal: Terminal,
) -> Result<u8, CliError> {
    let output = |format| OutputOptions::new(format, terminal);
    match verb {
        Verb::Status {
            target,
            all_namespaces,
            watch,
            output: format,
        } => {
            let options = status::StatusOptions {
                is_wide: *format == TextFormat::Wide,
            };
            let output = output(format.output_format()).redrawn(*watch);
            let show = async || {
                let shown = if *all_namespaces {
                    status::run_all(connection, options, output).await
                } else {
                    status::run(connection, target, options, output).await
                };
                shown.map_err(|error| error.with_commands(terminal))
            };
            if *watch {
                watch::repeat(show).await
            } else {
                show().await
            }
        }
        Verb::Why {
            target,
            all_namespaces,
            last,
            facts,
            output: format,
        } => {
            let options = why::WhyOptions {
                max_decisions: *last,
                include_facts: *facts,
                is_wide: *format == TextFormat::Wide,
            };
            let output = output(format.output_format());
            if *all_namespaces {
                why::run_all(connection, options, output).await
            } else {
                why::run(connection, target, options, output).await
            }
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
            plan::run(connection, target, options, output(*format)).await
        }
        Verb::Etcdctl {
            target,
            member,
            arguments,
        } => etcdctl::run(connection, target, member.as_deref(), arguments).await,
        Verb::Logs {
            target,
            member,
            follow,
            tail,
            since,
            previous,
        } => {
            let options = LogOptions {
                member: member.as_deref(),
                follow: *follow,
                tail: *tail,
                since_seconds: *since,
                previous: *previous,
            };
            logs::run(connection, target, &options, terminal).await
        }
        Verb::MoveLeader { target, to } => {
            move_leader::run(connection, target, to.as_deref()).await
        }
        Verb::Backup {
            target,
            store,
            name,
            deadline,
            no_wait,
            output: format,
        } => {
            let options = BackupOptions {
                store: store.as_deref(),
                name: name.as_deref(),
                deadline: deadline.as_deref(),
                waits: !no_wait,
            };
            backup::create::run(connection, target, options, output(*format)).await
        }
        Verb::Backups(args) => backups(args, connection, terminal).await,
        Verb::Restore(args) => restore(args, connection, terminal).await,
        Verb::Restores {
            cluster,
            all_namespaces,
            output: format,
        } => {
            let options = RestoresOptions {
                cluster: cluster.as_deref(),
                all_namespaces: *all_namespaces,
            };
            restore::list::run(connection, options, output(*format)).await
        }
        Verb::Restart { target } => restart::run(connection, target, terminal).await,
        Verb::Pause { target } => pause::run(connection, target, true, terminal).await,
        Verb::Resume { target } => pause::run(connection, target, false, terminal).await,
        // These are handled before the connection is opened.
        Verb::Version { .. } | Verb::Complete { .. } | Verb::Reference { .. } => Ok(0),
    }
}

/// Restores a cluster, or undoes that.
async fn restore(
    args: &RestoreArgs,
    connection: &Connection,
    terminal: Terminal,
) -> Result<u8, CliError> {
    let request = |request: &RequestArgs| RequestOptions {
        is_confirmed: request.yes,
        waits: !request.no_wait,
        timeout: Duration::from_secs(request.timeout.unsigned_abs()),
    };
    if let Some(RestoreVerb::Undo {
        restore,
        request: flags,
    }) = &args.undo
    {
        let output = OutputOptions::new(flags.output, terminal);
        return restore::undo::run(connection, restore, request(flags), output).await;
    }
    let options = RestoreOptions {
        backup: args.from.as_deref().unwrap_or_default(),
        name: args.name.as_deref(),
        keep_old_data_for: &args.keep_old_data_for,
        request: request(&args.request),
    };
    let output = OutputOptions::new(args.request.output, terminal);
    let cluster = args.cluster.as_deref().unwrap_or_default();
    restore::create::run(connection, cluster, options, output).await
}

/// Lists the backups of a namespace or of a store.
async fn backups(
    args: &BackupsArgs,
    connection: &Connection,
    terminal: Terminal,
) -> Result<u8, CliError> {
    let is_wide = args.output == TextFormat::Wide;
    let output = OutputOptions::new(args.output.output_format(), terminal).redrawn(args.watch);
    if let Some(store) = &args.from_store {
        let options = FromStoreOptions {
            store,
            cluster: args.cluster.as_deref(),
            import: &args.import,
            import_all: args.import_all,
            is_wide,
        };
        return backup::from_store::run(connection, options, output).await;
    }
    let options = BackupsOptions {
        cluster: args.cluster.as_deref(),
        all_namespaces: args.all_namespaces,
        store: args.store.as_deref(),
        is_wide,
    };
    let show = async || {
        let shown = backup::list::run(connection, options, output).await;
        shown.map_err(|error| error.with_commands(terminal))
    };
    if args.watch {
        watch::repeat(show).await
    } else {
        show().await
    }
}

//! The table of etcd's flags that users may set, and of those that they may not set, with the reason. To allow another
//! flag, add a row, and look up its name in `etcd --help` of each supported version.

use crate::etcd::releases::Minor;

/// A flag that users may set.
pub(crate) struct AllowedFlag {
    /// The name in the newest etcd, without dashes.
    pub name: &'static str,
    /// The values that are accepted.
    pub value: FlagValue,
    /// The default, for the docs.
    pub default: &'static str,
    /// The effect, for the docs.
    pub description: &'static str,
    /// The minor releases in which the flag is missing or has another name.
    pub differences: &'static [MinorDifference],
}

/// The values that a flag accepts.
pub(crate) enum FlagValue {
    /// A whole number within these bounds.
    Number { min: u64, max: u64 },
    /// A number with one unit, within these bounds.
    Duration {
        min: &'static str,
        max: &'static str,
    },
    /// One of these values.
    OneOf(&'static [&'static str]),
}

/// How a flag differs in an earlier minor release.
pub(crate) struct MinorDifference {
    pub minor: Minor,
    /// The name in this minor release. `None` if it does not have the flag.
    pub name: Option<&'static str>,
    /// The first patch release that has the flag.
    pub since_patch: u16,
}

const fn number(min: u64, max: u64) -> FlagValue {
    FlagValue::Number { min, max }
}

const fn duration(min: &'static str, max: &'static str) -> FlagValue {
    FlagValue::Duration { min, max }
}

const BOOLEAN: FlagValue = FlagValue::OneOf(&["true", "false"]);

const NOT_IN_3_5: &[MinorDifference] = &[MinorDifference {
    minor: Minor(3, 5),
    name: None,
    since_patch: 0,
}];

/// The name of a flag in 3.5, optionally with the first patch release that has it.
macro_rules! in_3_5 {
    ($name:literal) => {
        in_3_5!($name, 0)
    };
    ($name:literal, $since_patch:literal) => {
        &[MinorDifference {
            minor: Minor(3, 5),
            name: Some($name),
            since_patch: $since_patch,
        }]
    };
}

macro_rules! flag {
    ($name:literal, $value:expr, $default:literal, $description:literal) => {
        flag!($name, $value, $default, $description, &[])
    };
    ($name:literal, $value:expr, $default:literal, $description:literal, $differences:expr) => {
        AllowedFlag {
            name: $name,
            value: $value,
            default: $default,
            description: $description,
            differences: $differences,
        }
    };
}

/// The flags that users may set. The bounds are etcd's own. Where etcd has none, they exclude values that are probably
/// mistakes.
pub(crate) const ALLOWED: &[AllowedFlag] = &[
    flag!(
        "auth-token-ttl",
        number(1, 86_400),
        "300",
        "lifetime of a user's token, in seconds"
    ),
    flag!(
        "backend-batch-interval",
        duration("1ms", "10s"),
        "100ms",
        "maximum time before a batch of writes is committed to the database"
    ),
    flag!(
        "backend-batch-limit",
        number(1, 1_000_000),
        "10000",
        "maximum number of writes in a batch"
    ),
    flag!(
        "backend-bbolt-freelist-type",
        FlagValue::OneOf(&["array", "map"]),
        "map",
        "data structure of the database's free list"
    ),
    // The lower bound is bcrypt's. The upper bound keeps a login below some seconds.
    flag!(
        "bcrypt-cost",
        number(4, 16),
        "10",
        "cost of hashing users' passwords"
    ),
    flag!(
        "compact-hash-check-time",
        // etcd does not start with 0.
        duration("1s", "24h"),
        "1m",
        "interval at which members compare the hashes of compacted revisions",
        in_3_5!("experimental-compact-hash-check-time")
    ),
    flag!(
        "compaction-batch-limit",
        number(1, 1_000_000),
        "1000",
        "number of revisions that a compaction removes in one batch",
        in_3_5!("experimental-compaction-batch-limit")
    ),
    flag!(
        "compaction-sleep-interval",
        duration("0s", "10s"),
        "10ms",
        "pause between two batches of a compaction",
        // CHANGELOG-3.5: added in 3.5.16.
        in_3_5!("experimental-compaction-sleep-interval", 16)
    ),
    flag!(
        "corrupt-check-time",
        duration("1m", "168h"),
        "never",
        "interval at which members compare all of their data, which is expensive",
        in_3_5!("experimental-corrupt-check-time")
    ),
    // etcd does not start beyond 50 s, nor below five heartbeats.
    flag!(
        "election-timeout",
        number(50, MAX_ELECTION_TIMEOUT_MS),
        "1000",
        "time without a heartbeat after which a member starts an election, in milliseconds"
    ),
    flag!(
        "enable-grpc-gateway",
        BOOLEAN,
        "true",
        "whether the JSON gateway is enabled"
    ),
    flag!(
        "grpc-keepalive-interval",
        duration("0s", "24h"),
        "2h",
        "interval at which etcd pings idle clients; 0s disables pings"
    ),
    // Not above the default: the operator pings every 5 s and would be disconnected.
    flag!(
        "grpc-keepalive-min-time",
        duration("0s", "5s"),
        "5s",
        "minimum interval of clients' pings; clients that ping more often are disconnected"
    ),
    flag!(
        "grpc-keepalive-timeout",
        duration("1s", "1h"),
        "20s",
        "time to wait for the response to a ping"
    ),
    flag!(
        "heartbeat-interval",
        number(10, MAX_ELECTION_TIMEOUT_MS / MIN_HEARTBEATS_PER_ELECTION),
        "100",
        "interval of the leader's heartbeats, in milliseconds"
    ),
    flag!(
        "log-level",
        FlagValue::OneOf(&["debug", "info", "warn", "error", "panic", "fatal"]),
        "info",
        "log level"
    ),
    flag!(
        "max-concurrent-streams",
        number(100, 4_294_967_295),
        "unlimited",
        "maximum number of concurrent streams of each client"
    ),
    // etcd warns above 10 MiB.
    flag!(
        "max-request-bytes",
        number(1024, 10_485_760),
        "1572864",
        "maximum size of a request, in bytes"
    ),
    // 0 means unlimited, and would fill the volume.
    flag!(
        "max-snapshots",
        number(1, 100),
        "5",
        "number of snapshot files that are kept"
    ),
    flag!(
        "max-txn-ops",
        number(1, 65_536),
        "128",
        "maximum number of operations in a transaction"
    ),
    flag!(
        "max-wals",
        number(1, 100),
        "5",
        "number of WAL files that are kept"
    ),
    flag!(
        "metrics",
        FlagValue::OneOf(&["basic", "extensive"]),
        "basic",
        "level of detail; extensive adds latency histograms of requests"
    ),
    flag!(
        "snapshot-count",
        number(1, 10_000_000),
        "10000 (100000 in 3.5)",
        "number of log entries between two snapshots"
    ),
    // CHANGELOG-3.5: added in 3.5.8.
    flag!(
        "tls-min-version",
        FlagValue::OneOf(&["TLS1.2", "TLS1.3"]),
        "TLS1.2",
        "minimum version of TLS"
    ),
    flag!(
        "warning-apply-duration",
        duration("1ms", "1h"),
        "100ms",
        "duration above which the application of a write is logged",
        in_3_5!("experimental-warning-apply-duration")
    ),
    flag!(
        "warning-unary-request-duration",
        duration("1ms", "1h"),
        "300ms",
        "duration above which a request is logged",
        NOT_IN_3_5
    ),
    flag!(
        "watch-progress-notify-interval",
        duration("1s", "24h"),
        "10m",
        "interval of progress notifications to watchers",
        in_3_5!("experimental-watch-progress-notify-interval")
    ),
];

/// Flags that users may not set.
pub(crate) struct ForbiddenFlags {
    /// The names.
    pub names: &'static [&'static str],
    /// The prefixes of further names.
    pub prefixes: &'static [&'static str],
    /// The end of the message that begins with `option "<name>"`: the rule and the remedy.
    pub reason: &'static str,
}

/// The flags that users may not set and for which there is a specific reason. The first entry that matches is reported.
pub(crate) const FORBIDDEN: &[ForbiddenFlags] = &[
    ForbiddenFlags {
        names: &[],
        prefixes: &["-"],
        reason: "must be written without leading dashes",
    },
    ForbiddenFlags {
        names: &[],
        prefixes: &["experimental-"],
        reason: "must be written without experimental-. Use the name in the newest supported etcd; the operator translates it \
              for earlier versions",
    },
    ForbiddenFlags {
        names: &["quota-backend-bytes"],
        prefixes: &[],
        reason: "is not supported. Use spec.etcd.quota",
    },
    ForbiddenFlags {
        names: &[],
        prefixes: &["auto-compaction-"],
        reason: "is not supported. Use spec.etcd.autoCompaction",
    },
    ForbiddenFlags {
        names: &["force-new-cluster"],
        prefixes: &[],
        reason: "is not supported: it would split the cluster into two, and both would accept writes",
    },
    ForbiddenFlags {
        names: &["unsafe-no-fsync"],
        prefixes: &[],
        reason: "is not supported: the failure of a node would lose acknowledged writes",
    },
    ForbiddenFlags {
        names: &["name", "data-dir", "wal-dir"],
        prefixes: &["initial-", "listen-", "advertise-", "discovery"],
        reason: "is not supported: the operator sets the names, addresses and data directories of members",
    },
    ForbiddenFlags {
        names: &[
            "cert-file",
            "key-file",
            "trusted-ca-file",
            "auto-tls",
            "self-signed-cert-validity",
        ],
        prefixes: &["client-", "peer-"],
        reason: "is not supported: the operator manages the certificates. Use spec.tls",
    },
    ForbiddenFlags {
        names: &[
            "feature-gates",
            "max-learners",
            "strict-reconfig-check",
            "pre-vote",
            "downgrade-check-time",
        ],
        prefixes: &[],
        reason: "is not supported: the operator sets it, or relies on its default",
    },
    ForbiddenFlags {
        names: &[
            "logger",
            "log-outputs",
            "log-format",
            "enable-log-rotation",
            "log-rotation-config-json",
        ],
        prefixes: &[],
        reason: "is not supported: members log to the output of the container, which kubectl logs prints",
    },
    ForbiddenFlags {
        names: &["config-file"],
        prefixes: &[],
        reason: "is not supported: configure etcd in the EtcdCluster resource",
    },
    ForbiddenFlags {
        names: &["auth-token"],
        prefixes: &[],
        reason: "is not supported: signed tokens need keys in the pods, which the operator does not provide",
    },
    ForbiddenFlags {
        names: &["gateway", "grpc-proxy", "enable-v2", "v2-deprecation"],
        prefixes: &["proxy"],
        reason: "is not supported: the operator runs only members with the v3 API",
    },
];

/// The reason for a flag that is in neither table.
pub(crate) const UNKNOWN_FLAG: &str =
    "is not supported. See docs/configuration/options.md for the supported options";

/// A flag with a number, and its default.
pub(crate) struct NumericFlag {
    pub name: &'static str,
    pub default: u64,
}

/// The interval of the leader's heartbeats, in milliseconds.
pub(crate) const HEARTBEAT_INTERVAL: NumericFlag = NumericFlag {
    name: "heartbeat-interval",
    default: 100,
};
/// The time without a heartbeat after which a member starts an election, in milliseconds.
pub(crate) const ELECTION_TIMEOUT: NumericFlag = NumericFlag {
    name: "election-timeout",
    default: 1000,
};
/// etcd does not start if the election timeout is shorter than this number of heartbeat intervals.
pub(crate) const MIN_HEARTBEATS_PER_ELECTION: u64 = 5;
/// etcd does not start with a longer election timeout.
const MAX_ELECTION_TIMEOUT_MS: u64 = 50_000;

//! The table of etcd's flags that users may set, and of those that they may not set, with the reason. To allow one more
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
    /// One of these words.
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
        "seconds for which a token of a user is good"
    ),
    flag!(
        "backend-batch-interval",
        duration("1ms", "10s"),
        "100ms",
        "how long writes are gathered before they are committed to the database"
    ),
    flag!(
        "backend-batch-limit",
        number(1, 1_000_000),
        "10000",
        "how many are gathered at most"
    ),
    flag!(
        "backend-bbolt-freelist-type",
        FlagValue::OneOf(&["array", "map"]),
        "map",
        "how free pages are kept"
    ),
    // The lower bound is bcrypt's. The upper bound keeps a login below some seconds.
    flag!(
        "bcrypt-cost",
        number(4, 16),
        "10",
        "how hard passwords of users are to guess, and to check"
    ),
    flag!(
        "compact-hash-check-time",
        // etcd does not start with 0.
        duration("1s", "24h"),
        "1m",
        "how often members compare what was compacted",
        in_3_5!("experimental-compact-hash-check-time")
    ),
    flag!(
        "compaction-batch-limit",
        number(1, 1_000_000),
        "1000",
        "how many revisions are removed at a time",
        in_3_5!("experimental-compaction-batch-limit")
    ),
    flag!(
        "compaction-sleep-interval",
        duration("0s", "10s"),
        "10ms",
        "the pause between two such times",
        // CHANGELOG-3.5: it came with 3.5.16.
        in_3_5!("experimental-compaction-sleep-interval", 16)
    ),
    flag!(
        "corrupt-check-time",
        duration("1m", "168h"),
        "never",
        "how often members compare all of their data, which costs",
        in_3_5!("experimental-corrupt-check-time")
    ),
    // etcd does not start beyond 50 s, nor below five heartbeats.
    flag!(
        "election-timeout",
        number(50, MAX_ELECTION_TIMEOUT_MS),
        "1000",
        "milliseconds without a heartbeat after which a new leader is elected"
    ),
    flag!(
        "enable-grpc-gateway",
        BOOLEAN,
        "true",
        "whether there is an API in JSON"
    ),
    flag!(
        "grpc-keepalive-interval",
        duration("0s", "24h"),
        "2h",
        "how often etcd pings idle clients, 0s for never"
    ),
    // Not above the default: the operator pings every 5 s and would be disconnected.
    flag!(
        "grpc-keepalive-min-time",
        duration("0s", "5s"),
        "5s",
        "how often clients may ping; who does more often is cut off"
    ),
    flag!(
        "grpc-keepalive-timeout",
        duration("1s", "1h"),
        "20s",
        "how long a ping is waited for"
    ),
    flag!(
        "heartbeat-interval",
        number(10, MAX_ELECTION_TIMEOUT_MS / MIN_HEARTBEATS_PER_ELECTION),
        "100",
        "milliseconds between a leader's heartbeats"
    ),
    flag!(
        "log-level",
        FlagValue::OneOf(&["debug", "info", "warn", "error", "panic", "fatal"]),
        "info",
        "what is logged"
    ),
    flag!(
        "max-concurrent-streams",
        number(100, 4_294_967_295),
        "all it wants",
        "how many each client may open"
    ),
    // etcd warns above 10 MiB.
    flag!(
        "max-request-bytes",
        number(1024, 10_485_760),
        "1572864",
        "how large a request may be"
    ),
    // 0 means unlimited, and would fill the volume.
    flag!(
        "max-snapshots",
        number(1, 100),
        "5",
        "how many snapshots are kept beside the data"
    ),
    flag!(
        "max-txn-ops",
        number(1, 65_536),
        "128",
        "how many operations a transaction may have"
    ),
    flag!(
        "max-wals",
        number(1, 100),
        "5",
        "how many files of the log are kept"
    ),
    flag!(
        "metrics",
        FlagValue::OneOf(&["basic", "extensive"]),
        "basic",
        "extensive: how long each kind of request takes, too"
    ),
    flag!(
        "snapshot-count",
        number(1, 10_000_000),
        "10000, and in 3.5 100000",
        "after how many writes the log is cut"
    ),
    // CHANGELOG-3.5: it came with 3.5.8.
    flag!(
        "tls-min-version",
        FlagValue::OneOf(&["TLS1.2", "TLS1.3"]),
        "TLS1.2",
        "the oldest TLS that is spoken"
    ),
    flag!(
        "warning-apply-duration",
        duration("1ms", "1h"),
        "100ms",
        "how long a write may take to be applied before it is logged",
        in_3_5!("experimental-warning-apply-duration")
    ),
    flag!(
        "warning-unary-request-duration",
        duration("1ms", "1h"),
        "300ms",
        "how long a request may take before it is logged",
        NOT_IN_3_5
    ),
    flag!(
        "watch-progress-notify-interval",
        duration("1s", "24h"),
        "10m",
        "how often watchers are told where they are",
        in_3_5!("experimental-watch-progress-notify-interval")
    ),
];

/// Flags that users may not set.
pub(crate) struct ForbiddenFlags {
    /// The names.
    pub names: &'static [&'static str],
    /// The prefixes of further names.
    pub prefixes: &'static [&'static str],
    /// The reason, and what to do instead.
    pub reason: &'static str,
}

/// The flags that users may not set and for which there is a specific reason. The first entry that matches is reported.
pub(crate) const FORBIDDEN: &[ForbiddenFlags] = &[
    ForbiddenFlags {
        names: &[],
        prefixes: &["-"],
        reason: "leave out the dashes",
    },
    ForbiddenFlags {
        names: &[],
        prefixes: &["experimental-"],
        reason: "leave out experimental-: write what the newest etcd calls it, and each version gets it by the name that \
              it knows",
    },
    ForbiddenFlags {
        names: &["quota-backend-bytes"],
        prefixes: &[],
        reason: "use spec.etcd.quota",
    },
    ForbiddenFlags {
        names: &[],
        prefixes: &["auto-compaction-"],
        reason: "use spec.etcd.autoCompaction",
    },
    ForbiddenFlags {
        names: &["force-new-cluster"],
        prefixes: &[],
        reason: "it makes two clusters of one, and both take writes",
    },
    ForbiddenFlags {
        names: &["unsafe-no-fsync"],
        prefixes: &[],
        reason: "writes that were acknowledged would be lost with a node",
    },
    ForbiddenFlags {
        names: &["name", "data-dir", "wal-dir"],
        prefixes: &["initial-", "listen-", "advertise-", "discovery"],
        reason: "Evenkeel sees to members' names, addresses and data",
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
        reason: "Evenkeel sees to certificates, and members trust no others: see spec.tls",
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
        reason: "Evenkeel counts on what it is",
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
        reason: "the log goes where kubectl logs finds it, as it is",
    },
    ForbiddenFlags {
        names: &["config-file"],
        prefixes: &[],
        reason: "all that is configured stands in this resource",
    },
    ForbiddenFlags {
        names: &["auth-token"],
        prefixes: &[],
        reason: "tokens that are signed need keys in the pods, which Evenkeel does not bring there",
    },
    ForbiddenFlags {
        names: &["gateway", "grpc-proxy", "enable-v2", "v2-deprecation"],
        prefixes: &["proxy"],
        reason: "Evenkeel runs members, with what etcd calls its v3 API, and nothing else",
    },
];

/// The reason for a flag that is in neither table.
pub(crate) const UNKNOWN_FLAG: &str = "not known to Evenkeel, which passes on only what it knows to be harmless: docs/tasks/options.md lists it";

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

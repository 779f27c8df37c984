//! Adds the namespace to the commands in the plugin's texts, so that a user can run them as printed. The operator does not
//! know which namespace the user's kubeconfig selects.

/// Separates the flags of kubectl from the arguments of another program.
const ENDS_OF_FLAGS: [&str; 3] = [" -- ", " | ", " > "];
/// The verbs of kubectl that need no namespace.
const CLUSTER_VERBS: [&str; 9] = [
    "api-resources",
    "cluster-info",
    "config",
    "cordon",
    "drain",
    "explain",
    "taint",
    "uncordon",
    "version",
];
/// The kinds without a namespace, as users write them.
const CLUSTER_KINDS: [&str; 13] = [
    "crd",
    "customresourcedefinition",
    "namespace",
    "namespaces",
    "node",
    "nodes",
    "ns",
    "persistentvolume",
    "persistentvolumes",
    "pv",
    "sc",
    "storageclass",
    "storageclasses",
];
/// The flags that select a namespace, or all.
const NAMESPACE_FLAGS: [&str; 4] = ["-n", "--namespace", "-A", "--all-namespaces"];

/// Returns the text with `-n <namespace>` in each kubectl command in backticks that needs it.
pub(crate) fn in_namespace(text: &str, namespace: &str) -> String {
    let parts: Vec<_> = text.split('`').collect();
    let last = parts.len() - 1;
    let quoted = |index: usize| index % 2 == 1 && index < last;
    let parts: Vec<_> = parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| {
            if quoted(index) && needs_namespace(part) {
                add_namespace(part, namespace)
            } else {
                part.to_owned()
            }
        })
        .collect();
    parts.join("`")
}

/// Returns whether a text is a command of kubectl about objects in a namespace, and selects none.
fn needs_namespace(command: &str) -> bool {
    let flags_end = flags_end(command);
    let words: Vec<_> = command[..flags_end].split_whitespace().collect();
    let selects_namespace = words.iter().any(|word| {
        let flag = word.split('=').next().unwrap_or(word);
        NAMESPACE_FLAGS.contains(&flag)
    });
    if selects_namespace {
        return false;
    }
    match words.as_slice() {
        ["kubectl", "evenkeel", verb, ..] => *verb != "version",
        // A verb alone is part of a sentence, and not a command.
        ["kubectl", verb, kind, ..] => {
            let kind = kind.split(['/', '.', ',']).next().unwrap_or(kind);
            !CLUSTER_VERBS.contains(verb) && !CLUSTER_KINDS.contains(&kind)
        }
        _ => false,
    }
}

/// Returns where the flags of kubectl end.
fn flags_end(command: &str) -> usize {
    let ends = ENDS_OF_FLAGS.iter().filter_map(|end| command.find(end));
    ends.min().unwrap_or(command.len())
}

fn add_namespace(command: &str, namespace: &str) -> String {
    let (flags, rest) = command.split_at(flags_end(command));
    format!("{flags} -n {namespace}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_backticks_get_the_namespace_before_the_arguments_of_others() {
        let cases = [
            (
                "`kubectl evenkeel why up`",
                "`kubectl evenkeel why up -n t2`",
            ),
            (
                "See `kubectl evenkeel logs up --previous`, then `kubectl describe pod up-a`.",
                "See `kubectl evenkeel logs up --previous -n t2`, then `kubectl describe pod up-a -n t2`.",
            ),
            (
                "`kubectl evenkeel etcdctl up -- member remove 1f`",
                "`kubectl evenkeel etcdctl up -n t2 -- member remove 1f`",
            ),
            (
                "`kubectl get pvc -o yaml | grep a`",
                "`kubectl get pvc -o yaml -n t2 | grep a`",
            ),
            (
                "`kubectl evenkeel status` shows it",
                "`kubectl evenkeel status -n t2` shows it",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(in_namespace(text, "t2"), expected);
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in [
            "`kubectl delete node node-3`",
            "`kubectl uncordon node-3`",
            "`kubectl drain node-3`",
            "`kubectl get storageclass`",
            "`kubectl describe node/node-3`",
            "`kubectl cluster-info`",
            "`kubectl config view`",
            "`kubectl evenkeel version`",
            "`kubectl evenkeel status -A`",
            "`kubectl -n evenkeel-system get deployments,pods`",
            "`kubectl get pods --namespace=web`",
            "after `kubectl apply`",
            "kubectl get pods",
            "an unfinished ` and kubectl get pods",
            "spec.storage.class and `spec.members`",
        ] {
            assert_eq!(in_namespace(text, "t2"), text);
        }
    }
}

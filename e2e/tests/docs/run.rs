//! The run of one page.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_docs::page::{ExpectedOutput, Page, PageSetup};
use evenkeel_docs::{CommandBlock, normalize};
use evenkeel_e2e::operator::{Operator, Options, binary, install, load_operator_image};
use evenkeel_e2e::s3::agent_image;
use evenkeel_e2e::{Story, checkout};
use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::helm;
use serde_json::json;

use crate::shell::Shell;

/// The image that the docs install.
const IMAGE: &str = "registry.example/evenkeel-operator:0.1.0";

/// The shortest time that a command gets.
const MIN_TIME: Duration = Duration::from_secs(20);

/// The delay before commands that only read are repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Returns a name of two letters for the story of a page. Its namespace (`qk-3f6e`) is then as long as `default`, which
/// replaces it in captured screens, so that the lines of a screen break where they break for readers.
fn story_name(path: &str) -> String {
    let hash = path.bytes().fold(5381_u32, |hash, byte| {
        hash.wrapping_mul(33) ^ u32::from(byte)
    });
    let letter = |index: u32| char::from_u32(u32::from(b'a') + index % 26).unwrap_or('a');
    [letter(hash), letter(hash / 26)].iter().collect()
}

/// Runs all commands of a page in order.
pub(crate) fn page(path: &str) {
    let file = checkout().join(path);
    let text = std::fs::read_to_string(&file).unwrap();
    let page = Page::parse(path, &text).unwrap_or_else(|why| panic!("{why}"));
    assert!(!page.blocks.is_empty(), "{path} has nothing to run");
    let name = story_name(path);
    let story = if page.setup.exclusive {
        Story::alone(&name)
    } else {
        Story::begin(&name)
    };
    let began = Instant::now();
    let _restore_nodes = page.setup.exclusive.then(|| RestoreNodes(&story));
    let _not_installed = page.setup.is_bare.then(|| NotInstalled::create(&story));
    if text.contains(IMAGE.split(':').next().unwrap_or(IMAGE)) {
        load_operator_image(&story, IMAGE);
    }
    let operator = page
        .setup
        .has_operator
        .then(|| Operator::with(&story, pod_like_options(&story)));
    let dir = tempfile::tempdir().unwrap();
    let environment = environment(
        &story,
        &text,
        dir.path(),
        operator.as_ref().map(Operator::pid),
    );
    let mut shell = Shell::new(dir.path().to_owned(), environment);
    set_up(&mut shell, &page.setup);
    let mut captured = Vec::new();
    let writes_screens = std::env::var("EVENKEEL_SCREENS").is_ok_and(|it| it == "write");
    for block in &page.blocks {
        let printed = run(&mut shell, &page, block, story.namespace(), writes_screens);
        let screen = block
            .expected
            .as_ref()
            .and_then(|expected| Some((expected, expected.screen.as_ref()?)));
        if let Some((expected, screen)) = screen.filter(|_| writes_screens) {
            let seen = cut(&printed, screen.up_to.as_deref());
            // A text that differs only in names, ages and the like is not rewritten.
            if normalize::difference(&expected.text, &seen).is_some() {
                captured.push((expected.lines.clone(), seen));
            }
        }
    }
    if !captured.is_empty() {
        std::fs::write(&file, Page::replace_screens(&text, captured)).unwrap();
    }
    println!(
        "{path}: {} blocks in {:.0} s",
        page.blocks.len(),
        began.elapsed().as_secs_f64()
    );
}

/// Returns the options of an operator whose name is that of a pod.
fn pod_like_options(story: &Story) -> Options {
    let name = (
        "POD_NAME".to_owned(),
        "evenkeel-operator-6c9d7b4f5d-x2k4q".to_owned(),
    );
    Options {
        env: vec![name],
        agent_image: Some(agent_image(story).to_owned()),
        ..Options::default()
    }
}

/// Runs one block. Its exit code and its output must be those on the page; returns the output.
fn run(
    shell: &mut Shell,
    page: &Page,
    block: &CommandBlock,
    namespace: &str,
    writes_screens: bool,
) -> String {
    let began = Instant::now();
    let mut differences: Vec<String> = Vec::new();
    loop {
        // The last attempt gets its time, too.
        let left = block.timeout.saturating_sub(began.elapsed()).max(MIN_TIME);
        let result = shell.run(block, left);
        // The pages show the namespace `default`.
        let printed = result.printed.replace(namespace, "default");
        let difference = match (result.code, &block.expected) {
            (None, _) => Some(format!(
                "the commands took longer than {} s",
                block.timeout.as_secs()
            )),
            (Some(code), _) if code != block.exit_code => {
                Some(format!("the exit code is {code}, not {}", block.exit_code))
            }
            (_, Some(expected)) => differs(expected, &printed, writes_screens),
            _ => None,
        };
        let Some(difference) = difference else {
            return printed;
        };
        if !differences.contains(&difference) {
            differences.push(difference);
        }
        let may_retry =
            block.expected.is_some() && block.is_read_only() && began.elapsed() < block.timeout;
        if !may_retry || result.code.is_none() {
            let seen: String = printed
                .lines()
                .map(|line| format!("    | {line}\n"))
                .collect();
            // A fault may end before its screen matches: the earlier differences then tell why.
            let differences = differences.join("\n  then ");
            panic!(
                "{}:{}: {differences}\n{}\n{seen}",
                page.path, block.line, block.script
            );
        }
        std::thread::sleep(RETRY_DELAY);
    }
}

/// Returns the difference between the output and the page.
fn differs(expected: &ExpectedOutput, printed: &str, writes_screens: bool) -> Option<String> {
    match &expected.screen {
        Some(screen) if writes_screens => {
            let seen = printed.split_whitespace().collect::<Vec<_>>().join(" ");
            (!seen.contains(&screen.until))
                .then(|| format!("the output does not contain `{}`", screen.until))
        }
        Some(screen) => {
            normalize::difference(&expected.text, &cut(printed, screen.up_to.as_deref()))
        }
        None => normalize::difference(&expected.text, printed),
    }
}

/// Returns the part of the output that is captured: all, or all lines before the one that begins with `upto`.
fn cut(printed: &str, upto: Option<&str>) -> String {
    let Some(upto) = upto else {
        return printed.trim_end().to_owned();
    };
    let lines: Vec<_> = printed
        .lines()
        .take_while(|line| !line.starts_with(upto))
        .collect();
    lines.join("\n").trim_end().to_owned()
}

/// Returns the environment of a reader: `kubectl` with the plugin, `helm` if the page uses it, `lab`, and the page's namespace.
fn environment(
    story: &Story,
    page: &str,
    dir: &Path,
    operator: Option<u32>,
) -> Vec<(String, String)> {
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    let programs = dir.join("bin");
    std::fs::create_dir(&programs).unwrap();
    let mut links = vec![("kubectl-evenkeel", binary("kubectl-evenkeel"))];
    // Building helm takes minutes if it is missing, and few pages use it.
    if page.contains("helm ") {
        links.push(("helm", helm::get().unwrap()));
    }
    for (name, program) in links {
        std::os::unix::fs::symlink(program.canonicalize().unwrap(), programs.join(name)).unwrap();
    }
    // Processes that `lab` starts outlive the page, so they must not use the page's temporary directory.
    let home = std::env::var("HOME").unwrap_or_default();
    let lab = shown(&checkout().join("bin/lab").canonicalize().unwrap());
    let script =
        format!("#!/bin/sh\nexec env -u TMPDIR -u KUBECONFIG 'HOME={home}' '{lab}' \"$@\"\n");
    std::fs::write(programs.join("lab"), script).unwrap();
    std::fs::set_permissions(programs.join("lab"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let kubeconfig = dir.join("kubeconfig");
    let view = ["config", "view", "--flatten", "--minify", "--output=json"];
    let mut config: serde_json::Value =
        serde_json::from_str(&story.lab().kubectl().args(view).run().unwrap()).unwrap();
    config["contexts"][0]["context"]["namespace"] = story.namespace().into();
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut env = vec![
        (
            "PATH".to_owned(),
            format!(
                "{}:{}:{path}",
                shown(&programs),
                shown(&story.lab().programs())
            ),
        ),
        ("KUBECONFIG".to_owned(), shown(&kubeconfig)),
        ("LAB".to_owned(), story.lab().name().to_string()),
        ("HOME".to_owned(), shown(dir)),
        ("TMPDIR".to_owned(), shown(dir)),
        ("TERM".to_owned(), "xterm".to_owned()),
        ("NAMESPACE".to_owned(), story.namespace().to_owned()),
    ];
    env.extend(operator.map(|pid| ("OPERATOR".to_owned(), pid.to_string())));
    env
}

/// Creates the objects that the page needs.
fn set_up(shell: &mut Shell, how: &PageSetup) {
    let Some(members) = how.cluster_members else {
        return;
    };
    let spec = json!({"version": "3.6.16", "members": members, "storage": {"size": "1Gi"}});
    let cluster = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "orders"}, "spec": spec});
    let script = format!(
        "kubectl apply -f - <<'END'\n{cluster}\nEND\nkubectl wait --for=jsonpath='{{.status.summary}}'=Healthy etcd/orders --timeout=240s"
    );
    let block = CommandBlock {
        line: 0,
        script,
        exit_code: 0,
        timeout: Duration::from_secs(250),
        expected: None,
    };
    let result = shell.run(&block, block.timeout);
    assert_eq!(
        result.code,
        Some(0),
        "the cluster is not healthy: {}",
        result.printed
    );
}

/// Restores all nodes on drop.
struct RestoreNodes<'s>(&'s Story);

impl Drop for RestoreNodes<'_> {
    fn drop(&mut self) {
        // Best effort: a failed story restores the nodes itself.
        let _ = self.0.lab().heal();
        for node in self.0.lab().nodes() {
            let _ = self.0.lab().wait_until_ready(&node.name);
            let _ = self.0.try_kubectl(&["uncordon", &node.name]);
        }
    }
}

/// A lab on which Evenkeel is not installed, until it is dropped.
struct NotInstalled<'s>(&'s Story);

/// Returns the directory of the CustomResourceDefinitions.
fn crds() -> String {
    let directory = checkout().join("deploy/crds");
    directory.to_string_lossy().into_owned()
}

impl<'s> NotInstalled<'s> {
    fn create(story: &'s Story) -> Self {
        // First, so that the CRDs of other stories exist again afterwards.
        install(story);
        let gone = Self(story);
        gone.uninstall();
        gone
    }

    fn uninstall(&self) {
        let all = [
            "clusterroles",
            "clusterrolebindings",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ];
        for kind in all {
            let ours = self.0.kubectl(&[
                "get",
                kind,
                "--selector=app.kubernetes.io/name=evenkeel",
                "-o=name",
            ]);
            let ours: Vec<_> = ours.lines().collect();
            if !ours.is_empty() {
                self.0
                    .kubectl(&[&["delete", "--ignore-not-found"], &ours[..]].concat());
            }
        }
        let crds = crds();
        for args in [
            ["--filename", crds.as_str()],
            ["namespace", "evenkeel-system"],
            ["namespace", "shop"],
        ] {
            let options = ["--ignore-not-found", "--timeout=120s"];
            self.0.kubectl(&[&["delete"], &args[..], &options].concat());
        }
    }
}

impl Drop for NotInstalled<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A panic while panicking would abort the process.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.uninstall()));
        } else {
            self.uninstall();
        }
        let crds = crds();
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename",
            &crds,
        ];
        let wait = [
            "wait",
            "--for=condition=Established",
            "--timeout=90s",
            "--filename",
            &crds,
        ];
        let put_back: Result<Vec<_>, _> = [&apply[..], &wait]
            .into_iter()
            .map(|args| Cmd::run(self.0.lab().kubectl().args(args)))
            .collect();
        if !std::thread::panicking() {
            put_back.unwrap();
        }
    }
}

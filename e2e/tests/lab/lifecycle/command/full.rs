//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn an_unknown_lab_and_an_invalid_name_are_reported() {
    for verb in [
        &["status"][..],
        &["kubeconfig"],
        &["node", "off", "node-1"],
        &["api", "stop"],
        &["power-cycle"],
    ] {
        let mut args = vec!["--name", "nowhere-to-be-found"];
        args.extend(verb);
        let (code, output) = lab(&args);
        assert!(
            code != 0 && output.contains("there is no lab `nowhere-to-be-found`"),
            "{verb:?}: {code}: {output}"
        );
    }
    for name in [
        "",
        "Upper",
        "../up",
        "a_b",
        "-x",
        "a-name-far-too-long-for-any-lab",
    ] {
        let (code, output) = lab(&["up", &format!("--name={name}")]);
        assert!(
            code != 0 && output.contains("cannot name a lab"),
            "{name:?}: {code}: {output}"
        );
    }
    let own = std::env::var("LAB").unwrap();
    let (code, output) = lab(&["--name", &own, "node", "off", "node-99"]);
    assert!(
        code != 0 && output.contains("has no node `node-99`"),
        "{code}: {output}"
    );
}

#[test]
fn up_without_privileges_reports_every_forbidden_operation() {
    // The unprivileged user may not read the checkout.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("lab");
    fs::copy(program(), &copy).unwrap();
    let name = format!("{}-rejected", std::env::var("LAB").unwrap());
    let up = |privileges: &[&str]| {
        let command = Cmd::new("timeout")
            .args(["--signal=KILL", "60", "setpriv"])
            .args(privileges);
        run(command.arg(&copy).args(["--name", &name, "up"]))
    };

    let (code, output) = up(&["--reuid=65534", "--regid=65534", "--clear-groups"]);
    assert_eq!(code, 1, "{output}");
    for what in [
        "root",
        "namespaces",
        "mounts",
        "a network of its own",
        "cgroups",
        "loop devices",
    ] {
        assert!(
            output.contains(&format!("✗ {what}: ")),
            "{what} is not reported:\n{output}"
        );
    }

    let (code, output) = up(&["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    assert_eq!(code, 1, "{output}");
    for what in ["namespaces", "mounts", "a network of its own"] {
        assert!(
            output.contains(&format!("✗ {what}: ")),
            "{what} is not reported:\n{output}"
        );
    }
    assert!(
        output.contains("CAP_SYS_ADMIN") && !output.contains("✗ root"),
        "{output}"
    );

    let (_, labs) = lab(&["list"]);
    assert!(!labs.contains(&name), "a lab was created: {labs}");
}

//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_lab_that_is_not_there_and_a_name_that_cannot_be_are_said_clearly() {
    for verb in [
        &["status"][..],
        &["kubeconfig"],
        &["node", "off", "node-1"],
        &["api", "stop"],
        &["power-cycle"],
    ] {
        let mut args = vec!["--name", "nowhere-to-be-found"];
        args.extend(verb);
        let (code, said) = lab(&args);
        assert!(
            code != 0 && said.contains("there is no lab `nowhere-to-be-found`"),
            "{verb:?}: {code}: {said}"
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
        let (code, said) = lab(&["up", &format!("--name={name}")]);
        assert!(
            code != 0 && said.contains("cannot name a lab"),
            "{name:?}: {code}: {said}"
        );
    }
    let own = std::env::var("LAB").unwrap();
    let (code, said) = lab(&["--name", &own, "node", "off", "node-99"]);
    assert!(
        code != 0 && said.contains("has no node `node-99`"),
        "{code}: {said}"
    );
}

#[test]
fn without_privileges_up_names_every_operation_that_is_refused_and_makes_nothing() {
    // Nobody may not look into the checkout.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("lab");
    fs::copy(program(), &copy).unwrap();
    let name = format!("{}-refused", std::env::var("LAB").unwrap());
    let up = |privileges: &[&str]| {
        let command = Cmd::new("timeout")
            .args(["--signal=KILL", "60", "setpriv"])
            .args(privileges);
        run(command.arg(&copy).args(["--name", &name, "up"]))
    };

    let (code, said) = up(&["--reuid=65534", "--regid=65534", "--clear-groups"]);
    assert_eq!(code, 1, "{said}");
    for what in [
        "root",
        "namespaces",
        "mounts",
        "a network of its own",
        "cgroups",
        "loop devices",
    ] {
        assert!(
            said.contains(&format!("✗ {what}: ")),
            "{what} is not named:\n{said}"
        );
    }

    let (code, said) = up(&["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    assert_eq!(code, 1, "{said}");
    for what in ["namespaces", "mounts", "a network of its own"] {
        assert!(
            said.contains(&format!("✗ {what}: ")),
            "{what} is not named:\n{said}"
        );
    }
    assert!(
        said.contains("CAP_SYS_ADMIN") && !said.contains("✗ root"),
        "{said}"
    );

    let (_, labs) = lab(&["list"]);
    assert!(!labs.contains(&name), "a lab was made: {labs}");
}

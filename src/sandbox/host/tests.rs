use super::*;

fn user() -> Facts {
    Facts { release: "6.1.0-18-amd64".into(), exe: "/usr/local/bin/creel".into(), ..Facts::default() }
}

fn line(facts: &Facts, step: &str, errno: i32) -> String {
    let lack = Lack::of_step_here(step, errno, facts).unwrap();
    let line = lack.to_string();
    assert!(!line.contains('\n') && !lack.fix().is_empty() && lack.code().starts_with("host."), "{line}");
    line
}

#[test]
fn each_restriction_of_user_namespaces_names_its_switch() {
    let max = Facts { max_user_namespaces: Some(0), ..user() };
    assert_eq!(
        line(&max, USER_NAMESPACE, libc::ENOSPC),
        "no user namespace can be made: user.max_user_namespaces is 0; as root: sysctl -w user.max_user_namespaces=15000"
    );
    let one = Facts { max_user_namespaces: Some(20_000), ..user() };
    assert!(line(&one, NAMESPACES, libc::ENOSPC).contains("sysctl -w user.max_user_namespaces=40000"));
    let debian = Facts { userns_clone: Some(0), ..user() };
    assert!(
        line(&debian, USER_NAMESPACE, libc::EPERM).ends_with("sysctl -w kernel.unprivileged_userns_clone=1")
    );
    let ubuntu = Facts { apparmor_restricts: Some(1), ..user() };
    // Ubuntu lets the namespace be made and refuses what comes after it.
    for step in [USER_NAMESPACE, MAP_CALLER, MOUNT_NAMESPACE] {
        let line = line(&ubuntu, step, libc::EPERM);
        assert!(line.contains("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"), "{line}");
        assert!(line.contains("profile creel /usr/local/bin/creel flags=(unconfined) { userns, }"), "{line}");
    }
    let chroot = Facts { chroot: true, ..user() };
    assert!(line(&chroot, USER_NAMESPACE, libc::EPERM).contains("in a chroot"));
    let docker = Facts { filtered: true, ..user() };
    assert!(line(&docker, USER_NAMESPACE, libc::EPERM).contains("seccomp=unconfined"));
    assert!(line(&docker, "fork the launcher", libc::ENOSYS).contains("seccomp=unconfined"));
    let weak_root = Facts { root: true, ..user() };
    assert!(line(&weak_root, MOUNT_NAMESPACE, libc::EPERM).contains("CAP_SYS_ADMIN"));
}

#[test]
fn other_namespaces() {
    let net = Facts { none_allowed: vec!["net"], max_user_namespaces: Some(9), ..user() };
    assert!(line(&net, NAMESPACES, libc::ENOSPC).ends_with("sysctl -w user.max_net_namespaces=15000"));
    let built = Facts { not_built: vec!["ipc"], ..user() };
    assert!(line(&built, NAMESPACES, libc::EINVAL).ends_with("CONFIG_IPC_NS=y"));
    let old = Facts { release: "5.4.0".into(), ..user() };
    assert_eq!(
        line(&old, "install the system-call filter", libc::ENOSYS),
        "this kernel (5.4.0) is too old: it can't install the system-call filter; boot Linux 5.13 or newer"
    );
}

#[test]
fn what_is_no_lack_of_the_host_stays_what_it_is() {
    for (step, errno) in [
        ("open inputs", libc::ENOENT),
        ("mount /proc", libc::ENOMEM),
        (NAMESPACES, libc::ENOMEM),
        (NAMESPACES, libc::EAGAIN),
    ] {
        assert_eq!(Lack::of_step_here(step, errno, &user()), None, "{step}");
    }
}

/// The steps are recognised by name: the names must be those that the sandbox gives them.
#[test]
fn the_names_are_those_of_the_steps() {
    let sources =
        [include_str!("../launcher.rs"), include_str!("../template.rs"), include_str!("../setup.rs")];
    for name in [
        USER_NAMESPACE,
        MAP_CALLER,
        MOUNT_NAMESPACE,
        NAMESPACES,
        CGROUP_NAMESPACE,
        LAYERS_NAMESPACE,
        PROC,
        OVERLAY,
        HOST_DEVICES,
    ] {
        assert!(sources.iter().any(|s| s.contains(&format!("step(\"{name}\""))), "{name}");
    }
    assert!(sources[1].contains("step(format!(\"make dev/{name}\")"));
}

#[test]
fn versions_of_kernels() {
    for (release, want) in [
        ("6.18.44-fc-v669", Some((6, 18, 44))),
        ("6.1.0-18-amd64", Some((6, 1, 0))),
        ("5.15", Some((5, 15, 0))),
        ("7.0-rc3", Some((7, 0, 0))),
        ("linux", None),
    ] {
        assert_eq!(facts::version(release), want, "{release}");
    }
}

#[test]
fn ranges_of_ids() {
    let all = "         0          0 4294967295\n";
    assert!(facts::maps_all(all, 1_900_000_000, 65_536));
    let split = "0 1000 1\n20 5 10\n10 7000 10\n";
    assert!(facts::maps_all(split, 10, 20));
    assert!(!facts::maps_all(split, 10, 21));
    assert!(!facts::maps_all(split, 0, 2));
    assert!(!facts::maps_all("", 0, 1));
}

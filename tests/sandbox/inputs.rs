//! Promise: inputs and skills appear read-only under safe names, with a manifest that says the truth about them.

use std::fs;

use crate::common::{Ctx, finish, spawn};
use serde_json::Value;

const MANIFEST: &str = r#"
    import json, os
    m = json.load(open('/inputs/manifest.json', encoding='utf-8'))
    print(json.dumps([dict(e, content=open(e['path'], 'rb').read().decode('latin-1')) for e in m]
                     + [sorted(os.listdir('/inputs'))]))
"#;

#[test]
fn the_manifest_is_right() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("a/data.csv", "x,y\n1,2\n");
    ctx.write("b/data.csv", "other");
    ctx.write("picture.png", [0x89, 0x50]);
    ctx.write("no-suffix", "");
    ctx.write("raw", "%PDF");
    let inputs = ["a/data.csv", "b/data.csv", "picture.png", "no-suffix", "raw=报告 1.pdf"];
    let options: Vec<&str> = inputs.iter().flat_map(|i| ["--input", i]).collect();
    let report = ctx.python(&options, MANIFEST).expect_ok();
    let mut list = report.inner().as_array().unwrap().clone();
    let listed = list.pop().unwrap();
    let field = |name: &str| list.iter().map(|e| e[name].clone()).collect::<Vec<Value>>();
    assert_eq!(field("displayName"), ["data.csv", "data.csv", "picture.png", "no-suffix", "报告 1.pdf"]);
    assert_eq!(field("content"), ["x,y\n1,2\n", "other", "\u{89}P", "", "%PDF"]);
    assert_eq!(field("size"), [8, 5, 2, 0, 4]);
    assert_eq!(field("mimeType")[..3], ["text/csv", "text/csv", "image/png"]);
    assert_eq!(field("mimeType")[4], "application/pdf");
    let mut names = vec!["manifest.json".to_owned()];
    for (n, entry) in list.iter().enumerate() {
        let name = entry["path"].as_str().unwrap().strip_prefix("/inputs/").unwrap();
        assert!(name.starts_with(&format!("{n:02}-")) && !name.contains('/'), "{name}");
        assert!(entry["ref"].is_string() && entry["mimeType"].is_string(), "{entry}");
        names.push(name.to_owned());
    }
    assert_eq!(names[1], "00-data.csv");
    assert_eq!(names[2], "01-data.csv");
    assert!(names[5].ends_with(".pdf"), "{names:?}");
    names.sort();
    assert_eq!(listed, Value::from(names));
    assert!(!report.stdout().contains(ctx.root().to_str().unwrap()), "a host path in the manifest: {report}");
}

#[test]
fn no_inputs_is_an_empty_manifest() {
    let Some(ctx) = Ctx::new() else { return };
    assert_eq!(ctx.python(&[], MANIFEST).expect_ok().stdout(), "[[\"manifest.json\"]]\n");
}

#[test]
fn hostile_names_are_made_safe_or_refused() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("file", "x");
    let long = "n".repeat(300);
    let names = [
        "../../etc/passwd",
        "/etc/passwd",
        ".",
        "..",
        "a/b.txt",
        "manifest.json",
        "-rf",
        "$(id);`id`",
        "a\nb.txt",
        "\u{1b}[31m.txt",
        "\u{202e}txt.exe",
        "entry.py",
        &long,
    ];
    for name in names {
        let mut command = ctx.creel();
        command.args(["run", "--json"]).args(ctx.start(&["-c", ""]));
        command.arg("--output").arg(ctx.out()).arg(format!("--input=file={name}"));
        let ran = finish(spawn(command.args(["-c", &crate::common::dedent(MANIFEST)])));
        if ran.code == Some(126) {
            continue;
        }
        let report = crate::common::Report::of(ran).expect_ok();
        let list = report.inner();
        let path = list[0]["path"].as_str().unwrap();
        let base = path.strip_prefix("/inputs/00-").unwrap_or_else(|| panic!("{name:?} became {path:?}"));
        assert!(
            !base.contains(|c: char| c == '/' || c.is_control() || c == '\u{202e}'),
            "{name:?} became {path:?}"
        );
        assert!(path.len() < 255, "{path}");
        assert_eq!(list[0]["content"], "x");
    }
}

#[test]
fn inputs_cant_be_written_and_the_hosts_file_stays() {
    let Some(ctx) = Ctx::new() else { return };
    let host = ctx.write("data.txt", "as it was");
    let code = r#"
        import os, errno
        def attempt(name, call):
            try:
                call()
                print(name, 'WORKED')
            except OSError as e:
                print(name, 'refused' if e.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EXDEV) else e)
        p = '/inputs/00-data.txt'
        attempt('write', lambda: open(p, 'w'))
        attempt('append', lambda: open(p, 'a'))
        attempt('unlink', lambda: os.unlink(p))
        attempt('rename', lambda: os.rename(p, '/inputs/x'))
        attempt('rename out', lambda: os.rename(p, '/outputs/x'))
        attempt('chmod', lambda: os.chmod(p, 0o777))
        attempt('utime', lambda: os.utime(p))
        attempt('truncate', lambda: os.truncate(p, 0))
        attempt('create', lambda: open('/inputs/new', 'w'))
        attempt('mkdir', lambda: os.mkdir('/inputs/d'))
        attempt('manifest', lambda: open('/inputs/manifest.json', 'w'))
        attempt('xattr', lambda: os.setxattr(p, 'user.x', b'1'))
        attempt('by fd', lambda: open(f'/proc/self/fd/{os.open(p, os.O_RDONLY)}', 'r+'))
    "#;
    let report = ctx.python(&["--input", "data.txt"], code).expect_ok();
    let worked: Vec<&str> = report.stdout().lines().filter(|l| !l.ends_with("refused")).collect();
    assert!(worked.is_empty(), "{worked:?}");
    assert_eq!(report.stdout().lines().count(), 13);
    assert_eq!(fs::read_to_string(host).unwrap(), "as it was");
}

#[test]
fn a_hard_link_to_an_input_is_not_an_output() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("data.txt", "secret");
    let code = r#"
        import os
        for target in ('/inputs/00-data.txt', '/etc/passwd', '/work/entry.py'):
            try:
                os.link(target, '/outputs/' + target.replace('/', '_'))
            except OSError as e:
                print('refused')
    "#;
    let report = ctx.python(&["--input", "data.txt"], code).expect_ok();
    let kept = ctx.outputs();
    assert!(!kept.keys().any(|k| k.contains("inputs") || k.contains("passwd")), "{kept:?}\n{report}");
}

#[test]
fn large_and_many_inputs_and_a_link_named_as_input() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("big.bin", vec![7; 40 << 20]);
    std::os::unix::fs::symlink("big.bin", ctx.cwd().join("link.bin")).unwrap();
    let mut options = vec!["--input".to_owned(), "big.bin".into(), "--input".into(), "link.bin".into()];
    for n in 0..60 {
        ctx.write(&format!("f{n}"), n.to_string());
        options.extend(["--input".to_owned(), format!("f{n}")]);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let code = r#"
        import json
        m = json.load(open('/inputs/manifest.json'))
        print(len(m), m[0]['size'], m[1]['size'], m[1]['displayName'], open(m[61]['path']).read())
        print(m[61]['path'])
    "#;
    let report = ctx.python(&options, code).expect_ok();
    assert_eq!(report.stdout(), "62 41943040 41943040 link.bin 59\n/inputs/61-f59\n");
}

#[test]
fn a_file_creel_itself_could_not_have_read_is_refused() {
    let Some(ctx) = Ctx::new() else { return };
    // Root reads everything; a directory in place of a file is the portable case of "unreadable".
    fs::create_dir(ctx.cwd().join("d")).unwrap();
    let ran = ctx.run(&["--input", "d", "-c", "print('started')"]).expect_code(126);
    assert!(ran.err().contains('d') && ran.out().is_empty(), "{}", ran.err());
    assert!(ctx.outputs().is_empty());
}

#[test]
fn skills_are_read_only_under_their_id() {
    let Some(ctx) = Ctx::new() else { return };
    ctx.write("skills/charts/SKILL.md", "# 图表\n");
    ctx.write("skills/charts/lib/draw.py", "def draw(): return 'drawn'\n");
    ctx.write("other/SKILL.md", "other\n");
    let code = r#"
        import os, sys
        sys.path.insert(0, '/skill/charts/lib')
        import draw
        print(draw.draw(), open('/skill/charts/SKILL.md', encoding='utf-8').read().strip(), sorted(os.listdir('/skill')))
        for call in (lambda: open('/skill/charts/new', 'w'), lambda: os.unlink('/skill/charts/SKILL.md'),
                     lambda: os.mkdir('/skill/x'), lambda: open('/skill/second.id/SKILL.md', 'a')):
            try:
                call()
                print('WORKED')
            except OSError:
                pass
    "#;
    let report = ctx.python(&["--skill", "skills/charts", "--skill", "other=second.id"], code).expect_ok();
    assert_eq!(report.stdout(), "drawn # 图表 ['charts', 'second.id']\n");
    assert_eq!(fs::read_to_string(ctx.cwd().join("skills/charts/SKILL.md")).unwrap(), "# 图表\n");
    for bad in ["other=../x", "other=", "other=a/b", "other=.."] {
        ctx.run(&["--skill", bad, "-c", "pass"]).expect_code(126);
    }
}

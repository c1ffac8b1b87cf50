use super::*;

fn line(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

fn refused(data: &str) -> String {
    match Extended::parse(data.as_bytes()) {
        Err(Fault::Refused(_, text)) => text.into_owned(),
        other => panic!("{data:?}: {other:?}"),
    }
}

#[test]
fn all_that_matters_is_read() {
    let data = [
        line("path", "报告/a=b\nc"),
        line("linkpath", "x"),
        line("size", "12345678901"),
        line("uid", "4294967295"),
        line("gid", "10001"),
        line("mtime", "1700000000.0123456789"),
        line("atime", "1.5"),
        line("comment", ""),
        line("VENDOR.key", "value"),
        line("hdrcharset", "BINARY"),
        line("SCHILY.xattr.user.a", "\0\n="),
        line("LIBARCHIVE.xattr.trusted%2eoverlay.x%zz%", "AA"),
        line("SCHILY.acl.access", "user::rwx"),
    ]
    .concat();
    let x = Extended::parse(data.as_bytes()).unwrap();
    assert_eq!(x.path.unwrap(), "报告/a=b\nc".as_bytes());
    assert_eq!(x.link.unwrap(), b"x");
    assert_eq!((x.size, x.uid, x.gid), (Some(12345678901), Some(4294967295), Some(10001)));
    assert_eq!(x.mtime, Some((1700000000, 12345678)));
    let attributes = [&b"user.a"[..], b"trusted.overlay.x%zz%", b"SCHILY.acl.access"];
    assert_eq!(x.attributes, attributes);
    assert_eq!(Extended::parse(b"").unwrap(), Extended::default());
}

#[test]
fn records_that_are_none() {
    for data in [
        "path=a\n",
        "x",
        "\0\0\0\0",
        "9 path=a",
        "8 path=a\n",
        "11 path=a\n",
        "09 path=a\n",
        "+9 path=a\n",
        "9  path=a\n",
        " 9 path=a\n",
        "5 a\n\n",
        "4 =\n",
        "6 =a\n\n",
        "99999999999999999999 path=a\n",
        "2 \n",
        "0 \n",
        "9 path=a\n\0",
        "9 path=a\n\n",
    ] {
        assert!(refused(data).contains("LENGTH KEY=VALUE"), "{data:?}: {}", refused(data));
    }
}

#[test]
fn values_that_are_refused() {
    for (key, value, reason) in [
        ("path", "", "empty"),
        ("linkpath", "", "empty"),
        ("path", "a\0b", "NUL"),
        ("size", "", "decimal"),
        ("size", "-1", "negative"),
        ("size", "+1", "decimal"),
        ("size", "1.5", "decimal"),
        ("size", "0x10", "decimal"),
        ("size", " 1", "decimal"),
        ("size", "9223372036854775808", "decimal"),
        ("size", "99999999999999999999", "decimal"),
        ("uid", "-1", "negative"),
        ("mtime", "-1.5", "negative"),
        ("mtime", "1.-5", "decimal"),
        ("mtime", "nan", "decimal"),
        ("hdrcharset", "UTF-7", "not supported"),
        ("GNU.sparse.map", "0,1", "--sparse"),
        ("GNU.sparse.offset", "0", "--sparse"),
        ("SCHILY.realsize", "5", "--sparse"),
        ("GNU.sparse.major", "1", "1.0"),
        ("GNU.sparse.name", "x", "1.0"),
        ("GNU.dumpdir", "x", "not supported"),
        ("GNU.volume.filename", "x", "not supported"),
    ] {
        let text = refused(&line(key, value));
        assert!(text.contains(reason), "{key}={value:?}: {text}");
    }
    let sparse2 = [("major", "2"), ("minor", "0"), ("name", "x"), ("realsize", "1")];
    let data: String = sparse2.iter().map(|(k, v)| line(&format!("GNU.sparse.{k}"), v)).collect();
    assert!(refused(&data).contains("1.0"));
}

#[test]
fn what_matters_is_there_once() {
    for (key, value) in [("path", "a"), ("linkpath", "a"), ("size", "1"), ("uid", "1"), ("mtime", "1")] {
        let text = refused(&[line(key, value), line(key, value)].concat());
        assert!(text.contains("twice") && text.contains(key), "{text}");
    }
    Extended::parse([line("comment", "a"), line("comment", "b")].concat().as_bytes()).unwrap();
}

#[test]
fn a_global_header_changes_nothing() {
    check_global(line("comment", "0123456789abcdef").as_bytes()).unwrap();
    for key in ["path", "size", "mtime", "GNU.sparse.name", "SCHILY.xattr.user.x", "hdrcharset"] {
        assert!(check_global(line(key, "1").as_bytes()).is_err(), "{key}");
    }
    assert!(check_global(b"junk").is_err());
}

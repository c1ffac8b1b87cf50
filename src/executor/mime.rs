//! The MIME type of a file, by its name.

/// What the table of the `mime_guess` crate lacks, or says with today's meaning of another one (`.ts` is not video here).
const OURS: [(&str, &str); 12] = [
    ("arrow", "application/vnd.apache.arrow.file"),
    ("feather", "application/vnd.apache.arrow.file"),
    ("ipynb", "application/x-ipynb+json"),
    ("jsonl", "application/jsonl"),
    ("ndjson", "application/x-ndjson"),
    ("parquet", "application/vnd.apache.parquet"),
    ("py", "text/x-python"),
    ("sqlite", "application/vnd.sqlite3"),
    ("ts", "text/x-typescript"),
    ("wps", "application/vnd.ms-works"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// The type that the last extension of `name` stands for, in any case; `application/octet-stream` if it says nothing.
pub fn by_name(name: &str) -> String {
    let Some((_, extension)) = name.rsplit_once('.').filter(|(_, e)| !e.contains('/')) else {
        return mime_guess::mime::APPLICATION_OCTET_STREAM.to_string();
    };
    let ours = OURS.iter().find(|(ours, _)| ours.eq_ignore_ascii_case(extension));
    match ours {
        Some((_, mime)) => (*mime).to_owned(),
        None => mime_guess::from_ext(extension).first_or_octet_stream().essence_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_name() {
        const OOXML: &str = "application/vnd.openxmlformats-officedocument";
        for (name, want) in [
            ("销售.csv", "text/csv"),
            ("报告.DOCX", &format!("{OOXML}.wordprocessingml.document")),
            ("a.xlsx", &format!("{OOXML}.spreadsheetml.sheet")),
            ("a.pptx", &format!("{OOXML}.presentationml.presentation")),
            ("a.doc", "application/msword"),
            ("a.xls", "application/vnd.ms-excel"),
            ("a.ppt", "application/vnd.ms-powerpoint"),
            ("a.xlsm", "application/vnd.ms-excel.sheet.macroenabled.12"),
            ("a.odt", "application/vnd.oasis.opendocument.text"),
            ("a.ods", "application/vnd.oasis.opendocument.spreadsheet"),
            ("a.odp", "application/vnd.oasis.opendocument.presentation"),
            ("a.pdf", "application/pdf"),
            ("a.png", "image/png"),
            ("a.jpeg", "image/jpeg"),
            ("a.svg", "image/svg+xml"),
            ("a.json", "application/json"),
            ("a.txt", "text/plain"),
            ("a.log", "text/plain"),
            ("a.md", "text/markdown"),
            ("a.html", "text/html"),
            ("a.xml", "text/xml"),
            ("a.tar.gz", "application/gzip"),
            ("a.zip", "application/zip"),
            ("a.py", "text/x-python"),
            ("a.parquet", "application/vnd.apache.parquet"),
            ("README", "application/octet-stream"),
            ("a.nosuchthing", "application/octet-stream"),
            ("", "application/octet-stream"),
            (".", "application/octet-stream"),
            ("a.csv/README", "application/octet-stream"),
        ] {
            assert_eq!(by_name(name), *want, "{name}");
        }
    }
}

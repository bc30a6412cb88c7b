//! `requirements.txt` of a module in Python, as far as a build takes it: packages of the index, and nothing else.
//!
//! pip does more with such a file: it builds source folders, follows paths, URLs and options, and puts variables of the
//! user's environment in their place. So what pip gets is written by [`requirements`], from lines that it understood.

/// A line that is not taken.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedLine {
    /// Counted from 1.
    pub number: usize,
    pub text: String,
    pub reason: &'static str,
}

const OPTION: &str = "options (`-r`, `-c`, `-e`, `--index-url` …) are not taken; the user's own settings of pip say \
                      which index it asks";
const ELSEWHERE: &str = "paths, files, URLs and variables are not taken: a source package would run its own code outside \
                         of the sandbox; copy its modules into the module's folder instead";
const NAME: &str = "it does not begin with the name of a package";
const VERSIONS: &str = "after the name come extras in brackets, versions, and `; marker`";
const HASH: &str = "a hash is `--hash=sha256:` and hexadecimal digits";

/// What pip takes for a file if one of that name is there.
const ARCHIVES: [&str; 11] = [
    ".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz", ".xz", ".txz", ".lzma", ".lz",
];

/// The requirements, one a line, without comments.
pub fn requirements(text: &str) -> Result<String, RefusedLine> {
    let mut taken = String::new();
    let mut whole = String::new();
    let mut begun = None;
    let text = text.trim_start_matches('\u{feff}');
    for (index, line) in text.lines().enumerate() {
        let number = *begun.get_or_insert(index + 1);
        let line = without_comment(line).trim();
        // Tools that pin hashes write one requirement on more lines.
        let (part, continues) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        whole.push_str(part);
        whole.push(' ');
        if !continues {
            take(&mut taken, &whole, number)?;
            whole.clear();
            begun = None;
        }
    }
    take(&mut taken, &whole, begun.unwrap_or_default())?;
    Ok(taken)
}

fn take(taken: &mut String, line: &str, number: usize) -> Result<(), RefusedLine> {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return Ok(());
    }
    if let Some(reason) = fault(&line) {
        return Err(RefusedLine {
            number,
            text: line,
            reason,
        });
    }
    taken.push_str(&line);
    taken.push('\n');
    Ok(())
}

fn without_comment(line: &str) -> &str {
    let begins = |(at, _): &(usize, &str)| {
        let before = line.get(..*at).unwrap_or_default();
        before.is_empty() || before.ends_with(char::is_whitespace)
    };
    let comment = line.match_indices('#').find(begins);
    comment.map_or(line, |(at, _)| line.get(..at).unwrap_or_default())
}

/// What is wrong with a requirement, whose words are one space apart.
fn fault(line: &str) -> Option<&'static str> {
    let mut parts = line.split(" --hash=");
    let requirement = parts.next().unwrap_or_default();
    if parts.any(|hash| !is_hash(hash)) {
        return Some(HASH);
    }
    // pip takes whatever follows such a word for options.
    if requirement.split(' ').any(|word| word.starts_with('-')) {
        return Some(OPTION);
    }
    let (package, marker) = requirement.split_once(';').unwrap_or((requirement, ""));
    let package = package.trim();
    let whole = package.to_ascii_lowercase();
    if package.contains(['/', '\\', ':', '@', '$']) || package.starts_with('.') {
        return Some(ELSEWHERE);
    }
    let bare = whole.split('[').next().unwrap_or_default().trim();
    if ARCHIVES
        .iter()
        .any(|end| whole.ends_with(end) || bare.ends_with(end))
    {
        return Some(ELSEWHERE);
    }
    let end = package
        .find(|c: char| !is_of_name(c))
        .unwrap_or(package.len());
    let (name, rest) = package.split_at(end);
    if !name.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Some(NAME);
    }
    let mut versions = rest.trim();
    if let Some(extras) = versions.strip_prefix('[') {
        let Some((extras, rest)) = extras.split_once(']') else {
            return Some(VERSIONS);
        };
        if !extras
            .chars()
            .all(|c| is_of_name(c) || matches!(c, ',' | ' '))
        {
            return Some(VERSIONS);
        }
        versions = rest.trim();
    }
    let are_versions = versions.is_empty()
        || (versions.starts_with(['=', '<', '>', '!', '~', '('])
            && versions
                .chars()
                .all(|c| is_of_name(c) || "=<>!~(),*+ ".contains(c)));
    let is_marker = |c: char| is_of_name(c) || "=<>!~(),*+ '\"".contains(c);
    (!are_versions || !marker.chars().all(is_marker)).then_some(VERSIONS)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn is_hash(hash: &str) -> bool {
    hash.strip_prefix("sha256:")
        .is_some_and(|digits| digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_index_are_taken() {
        let hash = format!("--hash=sha256:{}", "0a".repeat(32));
        let text = format!(
            "\u{feff}# comment\n\nrequests\nattrs >= 23.1, != 23.2  # why\r\nfoo[bar,baz]==1.0.* ; python_version < \"3.15\"\n\
             foo_bar.baz~=1.0+local\nold (>1)\npinned==1 \\\n    {hash} \\\n    {hash}\nlast\\"
        );
        assert_eq!(
            requirements(&text).unwrap(),
            format!(
                "requests\nattrs >= 23.1, != 23.2\nfoo[bar,baz]==1.0.* ; python_version < \"3.15\"\n\
                 foo_bar.baz~=1.0+local\nold (>1)\npinned==1 {hash} {hash}\nlast\n"
            )
        );
    }

    #[test]
    fn what_authors_seldom_write_is_taken_as_it_stands() {
        for line in [
            "greet==1!2.0.post1",
            "greet >=1,<2,!=1.5.*",
            "Greet_2.x[a-b, c] (>=1,<2)",
            "greet ; (python_version >= '3.9' and sys_platform != \"win32\") or extra == 'x'",
            "greet~=2.1;python_version in '3.13 3.14'",
        ] {
            assert_eq!(requirements(line).unwrap(), format!("{line}\n"), "{line}");
        }
    }

    #[test]
    fn whatever_pip_would_look_for_elsewhere_is_refused() {
        for (line, reason) in [
            ("./pkg", ELSEWHERE),
            (".", ELSEWHERE),
            ("..", ELSEWHERE),
            ("pkg/", ELSEWHERE),
            ("C:\\pkg", ELSEWHERE),
            ("greet-1.0-py3-none-any.whl", ELSEWHERE),
            ("greet-1.0.tar.gz", ELSEWHERE),
            ("greet-1.0.ZIP[extra]", ELSEWHERE),
            ("greet @ file:///tmp/greet.whl", ELSEWHERE),
            ("https://host/${HOME}/x.whl", ELSEWHERE),
            ("greet==${VERSION}", ELSEWHERE),
            ("-e pkg", OPTION),
            ("-rother.txt", OPTION),
            ("--no-binary :all:", OPTION),
            ("greet --no-binary :all:", OPTION),
            ("greet ; python_version > '3' -e pkg", OPTION),
            ("greet --hash=md5:00", HASH),
            ("greet --hash=sha256:00 -e pkg", HASH),
            ("_greet", NAME),
            ("greet here", VERSIONS),
            ("greet[a/b", ELSEWHERE),
            ("greet[a b==1", VERSIONS),
            ("greet ; $HOME", VERSIONS),
        ] {
            let text = format!("# first\n{line}\n");
            let refused = requirements(&text).unwrap_err();
            assert_eq!((refused.number, refused.reason), (2, reason), "{line}");
        }
        // A continued line is one.
        let refused = requirements("greet \\\n-e \\\n pkg").unwrap_err();
        assert_eq!((refused.number, refused.text.as_str()), (1, "greet -e pkg"));
    }
}

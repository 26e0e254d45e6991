//! The normal form of a script: its words, apart from comments, blanks and the kind of quotes.

/// Writes the words of a script with blanks in between. The command of a `redis.call` is in lower
/// case, as case does not matter there.
pub(super) fn normal_form(text: &[u8]) -> Vec<u8> {
    let mut form = Form { text: Vec::with_capacity(text.len() * 2) };
    let mut rest = text;
    while let Some(first) = rest.first().copied() {
        rest = match first {
            b'-' if rest.starts_with(b"--") => after_comment(&rest[2..]),
            b'\'' | b'"' => form.quoted(rest, first),
            b';' => &rest[1..],
            _ if first.is_ascii_whitespace() => &rest[1..],
            _ if is_of_word(first) => {
                let end = rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len());
                form.push(&rest[..end]);
                &rest[end..]
            }
            _ => {
                form.push(&rest[..1]);
                &rest[1..]
            }
        };
    }
    form.text
}

struct Form {
    text: Vec<u8>,
}

impl Form {
    fn push(&mut self, word: &[u8]) {
        if !self.text.is_empty() {
            self.text.push(b' ');
        }
        self.text.extend_from_slice(word);
    }

    /// Takes a text in quotes; what follows it. One without an end goes to the end of the script.
    fn quoted<'a>(&mut self, rest: &'a [u8], quote: u8) -> &'a [u8] {
        let is_command =
            self.text.ends_with(b"redis . call (") || self.text.ends_with(b"redis . pcall (");
        let mut word = vec![b'"'];
        let mut bytes = rest[1..].iter().enumerate();
        let mut end = rest.len();
        while let Some((at, byte)) = bytes.next() {
            match *byte {
                b'\\' => {
                    word.push(b'\\');
                    word.extend(bytes.next().map(|(_, byte)| *byte));
                }
                byte if byte == quote => {
                    end = at + 2;
                    break;
                }
                byte if is_command => word.push(byte.to_ascii_lowercase()),
                byte => word.push(byte),
            }
        }
        word.push(b'"');
        self.push(&word);
        &rest[end.min(rest.len())..]
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// What follows a comment: one of several lines ends with as many equals signs as it begins with.
fn after_comment(text: &[u8]) -> &[u8] {
    let Some(level) = text.strip_prefix(b"[") else { return after(text, b"\n") };
    let signs = level.iter().take_while(|byte| **byte == b'=').count();
    if level.get(signs) == Some(&b'[') {
        after(level, &[b"]", &level[..signs], b"]"].concat())
    } else {
        after(text, b"\n")
    }
}

fn after<'a>(text: &'a [u8], end: &[u8]) -> &'a [u8] {
    let at = text.windows(end.len()).position(|window| window == end);
    at.map_or(&[], |at| &text[at + end.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        String::from_utf8(normal_form(text.as_bytes())).expect("it is text")
    }

    #[test]
    fn words_stay_and_the_rest_goes() {
        assert_eq!(form("local a=1; -- b\n return  a"), "local a = 1 return a");
        assert_eq!(form("a --[[ b\n c ]] d"), "a d");
        assert_eq!(form("a --[==[ b\n c ]] ]=] \n --]==] d"), "a d");
        assert_eq!(form("a --[= b\n c"), "a c");
        assert_eq!(form("redis.call('GET', 'Name')"), "redis . call ( \"get\" , \"Name\" )");
        assert_eq!(form("x == \"a'b\""), "x = = \"a'b\"");
        assert_eq!(form(r#"x == "a\"b" .. c"#), r#"x = = "a\"b" . . c"#);
    }

    #[test]
    fn what_does_not_end_goes_to_the_end() {
        assert_eq!(form("a 'b -- c"), "a \"b -- c\"");
        assert_eq!(form("a --[[ b"), "a");
        assert_eq!(form("a --[=[ b ]]\n c"), "a");
        assert_eq!(form("a -- b"), "a");
        assert_eq!(form(r"a 'b\"), r#"a "b\""#);
    }
}

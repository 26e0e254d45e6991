//! The format of settings in files.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::options::Consistency;

impl Serialize for Consistency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Consistency::Quorum => serializer.serialize_str("quorum"),
            Consistency::LocalQuorum(datacenter) => {
                serializer.collect_str(&format_args!("local-quorum:{datacenter}"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Consistency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Durations: written as text, read as text or as a number of seconds.
pub(crate) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::options::parse_duration;

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "use a number of seconds, or text as 20s, 500ms, 2m")]
    enum Form {
        Seconds(u64),
        Text(String),
    }

    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            None => serializer.serialize_none(),
            Some(whole) if whole.subsec_nanos() == 0 => {
                serializer.collect_str(&format_args!("{}s", whole.as_secs()))
            }
            Some(part) => serializer.collect_str(&format_args!("{}ms", part.as_millis())),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(match Option::<Form>::deserialize(deserializer)? {
            None => None,
            Some(Form::Seconds(seconds)) => Some(Duration::from_secs(seconds)),
            Some(Form::Text(text)) => Some(parse_duration(&text).map_err(de::Error::custom)?),
        })
    }
}

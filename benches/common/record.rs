//! What is kept of each measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::quantiles::{Quantiles, median};

/// One measurement of one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Figures are compared only within one half round.
    pub half: u32,
    pub side: String,
    pub measure: String,
    /// Such as the number of processes.
    pub parameters: BTreeMap<String, u64>,
    /// Their names end with their unit.
    pub values: BTreeMap<String, Value>,
    /// What the first failed acquisitions said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(f64),
    Quantiles(Quantiles),
}

impl Record {
    pub fn new(half: u32, side: &str, measure: &str, parameter: Option<(&str, u64)>) -> Self {
        let parameters = parameter.into_iter().map(|(name, value)| (name.to_owned(), value));
        Record {
            half,
            side: side.to_owned(),
            measure: measure.to_owned(),
            parameters: parameters.collect(),
            values: BTreeMap::new(),
            errors: Vec::new(),
        }
    }

    pub fn number(&mut self, name: &str, value: f64) {
        // JSON has no other numbers; a figure that does not exist is left out.
        if value.is_finite() {
            self.values.insert(name.to_owned(), Value::Number(value));
        }
    }

    pub fn quantiles(&mut self, name: &str, quantiles: Quantiles) {
        self.values.insert(name.to_owned(), Value::Quantiles(quantiles));
    }

    /// A figure: `errors`, or `wait_ms.p99`.
    pub fn figure(&self, path: &str) -> Option<f64> {
        let (name, quantile) = path.split_once('.').unwrap_or((path, ""));
        match (self.values.get(name)?, quantile) {
            (Value::Number(number), "") => Some(*number),
            (Value::Quantiles(quantiles), "count") => Some(quantiles.count as f64),
            (Value::Quantiles(quantiles), "p50") => Some(quantiles.p50),
            (Value::Quantiles(quantiles), "p99") => Some(quantiles.p99),
            (Value::Quantiles(quantiles), "p999") => Some(quantiles.p999),
            (Value::Quantiles(quantiles), "max") => Some(quantiles.max),
            _ => None,
        }
    }
}

/// Which records are meant.
#[derive(Clone, Copy, Debug)]
pub struct Which<'a> {
    pub side: &'a str,
    pub measure: &'a str,
    pub parameter: Option<(&'a str, u64)>,
}

impl Which<'_> {
    pub fn of<'r>(&self, records: &'r [Record]) -> Vec<&'r Record> {
        let has = |record: &Record| match self.parameter {
            Some((name, value)) => record.parameters.get(name) == Some(&value),
            None => true,
        };
        let meant = |record: &&Record| {
            record.side == self.side && record.measure == self.measure && has(record)
        };
        records.iter().filter(meant).collect()
    }

    /// A figure in each half round that has it.
    pub fn figures(&self, records: &[Record], path: &str) -> Vec<(u32, f64)> {
        let of = self.of(records);
        of.iter().filter_map(|record| Some((record.half, record.figure(path)?))).collect()
    }

    /// The median of a figure over the half rounds; `None` where none has it.
    pub fn median(&self, records: &[Record], path: &str) -> Option<f64> {
        let figures: Vec<_> = self.figures(records, path).into_iter().map(|(_, it)| it).collect();
        (!figures.is_empty()).then(|| median(&figures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: figures are found by side, measure, parameter and name, and survive as JSON.
    // Method: three records, there and back.
    #[test]
    fn figures_are_found() {
        let mut records = Vec::new();
        for (half, processes, grants) in [(0, 2, 10.0), (1, 2, 30.0), (1, 8, 5.0)] {
            let mut record = Record::new(half, "etcd", "hot name", Some(("processes", processes)));
            record.number("grants", grants);
            record.number("missing", f64::NAN);
            record.quantiles("wait_ms", Quantiles::milliseconds(vec![1_000_000, 3_000_000]));
            records.push(record);
        }
        let json = serde_json::to_string(&records).expect("it can be written");
        let records: Vec<Record> = serde_json::from_str(&json).expect("it can be read");
        let which = Which { side: "etcd", measure: "hot name", parameter: Some(("processes", 2)) };
        assert_eq!(which.figures(&records, "grants"), [(0, 10.0), (1, 30.0)]);
        assert_eq!(which.median(&records, "grants"), Some(20.0));
        assert_eq!(which.median(&records, "wait_ms.p99"), Some(3.0));
        assert_eq!(which.median(&records, "wait_ms"), None);
        assert_eq!(which.median(&records, "missing"), None);
        assert_eq!(Which { side: "Redlock", ..which }.median(&records, "grants"), None);
    }
}

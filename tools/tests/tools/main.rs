//! The tools as their users see them: arguments in; text, exit codes and rows out.

mod command;
mod environment;
mod help;
mod lock_hosts;
mod lockctl;
mod lockd;
mod masters;
mod outages;
mod output;
mod rights;
mod rotated;
mod secrets;
mod secured;
mod tls;

//! pod.

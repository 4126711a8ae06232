//! W3C trace context (<https://www.w3.org/TR/trace-context/>): which trace a request belongs to.

use std::fmt;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use rand::{Rng, RngExt};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The header.
pub const TRACEPARENT: &str = "traceparent";

/// The value of a `traceparent` header. `tracestate` is not looked at: it belongs to vendors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; never zero.
    trace: u128,
    /// The span that sends it; never zero.
    span: u64,
    /// Whether the caller keeps its spans.
    sampled: bool,
}

impl TraceParent {
    /// A new trace that nobody has decided to keep.
    pub fn random(rng: &mut impl Rng) -> Self {
        Self {
            trace: rng.random_range(1..=u128::MAX),
            span: rng.random_range(1..=u64::MAX),
            sampled: false,
        }
    }

    /// The same trace, sent by another span.
    #[must_use]
    pub fn child(self, rng: &mut impl Rng) -> Self {
        Self {
            span: rng.random_range(1..=u64::MAX),
            ..self
        }
    }

    /// Reads a header. Versions newer than 00 are read as far as they agree with it; anything else is `None`, and the
    /// trace begins here.
    pub fn parse(text: &str) -> Option<Self> {
        const LEN: usize = 55;
        let head = text.get(..LEN)?;
        let mut parts = head.split('-');
        let mut hex = |len: usize| {
            let part = parts.next()?;
            let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            (part.len() == len && part.bytes().all(digits))
                .then(|| u128::from_str_radix(part, 16).ok())?
        };
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let length_ok = match version {
            0 => text.len() == LEN,
            0xff => false,
            _ => text.len() == LEN || text[LEN..].starts_with('-'),
        };
        let span = u64::try_from(span).ok()?;
        (length_ok && parts.next().is_none() && trace != 0 && span != 0).then_some(Self {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }

    /// The trace's id in hex, for logs.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// Whether the caller keeps its spans.
    pub const fn sampled(&self) -> bool {
        self.sampled
    }

    /// What to send on from within a span; `None` when no spans are exported.
    pub fn of(span: &Span) -> Option<Self> {
        let context = span.context();
        let context = context.span().span_context().clone();
        context.is_valid().then(|| Self {
            trace: u128::from_be_bytes(context.trace_id().to_bytes()),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            sampled: context.is_sampled(),
        })
    }

    /// Makes a span that was just created part of this trace. Does nothing when no spans are exported.
    pub fn adopt(self, span: &Span) {
        let flags = if self.sampled {
            TraceFlags::SAMPLED
        } else {
            TraceFlags::default()
        };
        let context = SpanContext::new(
            TraceId::from_bytes(self.trace.to_be_bytes()),
            SpanId::from_bytes(self.span.to_be_bytes()),
            flags,
            true,
            TraceState::default(),
        );
        let parent = Context::new().with_remote_span_context(context);
        // No layer for spans, or a filtered span: then there is nothing to do.
        let _ = span.set_parent(parent);
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}

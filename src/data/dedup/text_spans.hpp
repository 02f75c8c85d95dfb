#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/hash.hpp"

namespace trireme::data {

enum class TextPart {
  lines,     ///< Python's str.splitlines, without the ends
  sentences  ///< `sentence_ends`, each with the white space before it
};

/// Spans of successive parts of a text, by which repeated text is found: CCNet's lines (Wenzek et al., "CCNet",
/// arXiv:1911.00359, 3.1), or the three sentences of C4 (Raffel et al., JMLR 21 (2020) 140, 2.2).
struct SpanOptions {
  TextPart part = TextPart::sentences;
  std::int64_t size = 3;  ///< parts of a span
};

/// Returns the parts of `text`, views of it.
std::vector<std::string_view> text_parts(std::string_view text, TextPart part);

/// Returns `text` as spans are compared, by the rules of `simplify_text` of datatrove 0.10: lower case; each number,
/// also one with a decimal or thousands separator, is one 0; each run of white space, control characters and the signs
/// listed there is one space, none at the ends; no accents, which are nonspacing marks (Mn) after decomposition (NFD).
std::string simplified(std::string_view text);

/// Returns the hash of each span, [first part], of simplified parts. That of a span without letters, digits or other
/// signs is `Hash128{}`. Empty if the text has fewer parts than a span.
std::vector<Hash128> span_hashes(std::string_view text, const SpanOptions& options);

/// Returns `text` without the parts of the spans with these first parts, ascending, and without white space before the
/// rest. Lines are joined by line feeds.
std::string without_spans(std::string_view text, const SpanOptions& options, std::span<const std::size_t> first_parts);

}  // namespace trireme::data

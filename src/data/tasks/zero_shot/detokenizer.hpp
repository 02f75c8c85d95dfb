#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

/// Rule that undoes the spaces which a data set's authors put around punctuation.
enum class Detokenizer { none, ptb, wikitext, lambada };

/// Returns the rule that Megatron-LM applies to the file at `path`: the first of "ptb", "wiki" and "lambada" that
/// `path` contains selects it. None of them: Detokenizer::none.
Detokenizer detokenizer_of(std::string_view path);

/// Returns the name of a rule as options spell it.
const char* name_of(Detokenizer detokenizer);

/// Returns `text`, which is UTF-8, by a rule of Megatron-LM 23.06, exactly: with white space as in Python's re, and
/// with brackets and quotes paired over the entire text, also across lines. LAMBADA's rule changes nothing.
std::string detokenized(std::string text, Detokenizer detokenizer);

}  // namespace trireme::data

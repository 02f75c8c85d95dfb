#pragma once

#include <functional>
#include <string_view>

#include "src/data/template/template.hpp"

namespace trireme::data::jinja {

/// Returns whether a text ends with the name of a special token.
using EndsWithToken = std::function<bool(std::string_view)>;

/// Renders a conversation for training. `variables` are those of a template, with "messages"; "add_generation_prompt"
/// is set here. `generated` has the parts of the text that a model learns, ascending, without overlaps:
///   * the blocks `{% generation %}` of a template that has such blocks, as in transformers;
///   * otherwise, for each message i of the role "assistant", the text between the renderings of messages 0 .. i - 1
///     with the generation prompt and of messages 0 .. i. White space after a special token at its end is left out.
/// Throws DataError as `Template::render` does, for a conversation without such a part, and if one of these renderings
/// does not begin with the one before it, or the conversation does not begin with it.
/// `limits` bounds each rendering.
Rendering render_learned(const Template& chat, Entries variables, const EndsWithToken& ends_with_token,
                         const Limits& limits = {});

}  // namespace trireme::data::jinja

#pragma once

#include <string>
#include <string_view>

namespace trireme::report {

/// Returns `text` for the content and the quoted attributes of HTML and SVG. Bytes that are not UTF-8, and control
/// characters, become U+FFFD.
std::string escaped(std::string_view text);

/// Returns an element with its end tag. `attributes` and `content` are markup.
std::string element(std::string_view name, std::string_view attributes, std::string_view content);

/// Returns an element of this class around a text, which is escaped.
std::string text_element(std::string_view name, std::string_view css_class, std::string_view text);

}  // namespace trireme::report

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Functions of Python's str. Texts are UTF-8, and positions count characters.
namespace trireme::data::jinja {

/// Returns whether Python's str.isspace holds for the character.
bool is_space(char32_t c);
/// Returns the bytes of white space that begin at byte `at`.
std::size_t space_bytes(std::string_view text, std::size_t at);

/// Sides of a text.
enum class Side { left, right, both };
/// str.strip: without `characters` removes white space.
std::string_view stripped(std::string_view text, Side side, const std::optional<std::string>& characters = {});

/// str.split and str.rsplit; without a separator at white space.
std::vector<std::string> split_text(std::string_view text, const std::optional<std::string>& separator,
                                    std::int64_t most, bool from_right);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends = false);
/// str.replace; `most` < 0: all.
std::string replaced(std::string_view text, std::string_view old, std::string_view with, std::int64_t most = -1);

std::string upper_case(std::string_view text);
/// str.title.
std::string title_case(std::string_view text);

/// Returns characters `begin`, `begin + step`, ... as Python's slices do.
std::string sliced(std::string_view text, std::optional<std::int64_t> begin, std::optional<std::int64_t> end,
                   std::int64_t step);
/// Positions of Python's slice of `size` elements.
std::vector<std::size_t> slice_positions(std::int64_t size, std::optional<std::int64_t> begin,
                                         std::optional<std::int64_t> end, std::int64_t step);
/// Characters of a text.
std::vector<std::string> characters_of(std::string_view text);

}  // namespace trireme::data::jinja

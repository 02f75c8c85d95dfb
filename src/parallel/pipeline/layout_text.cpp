#include "src/parallel/pipeline/layout_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::parallel {
namespace {

/// Limit of layers and of pieces, so that a typing error does not exhaust memory.
constexpr int max_pieces = 100000;

std::vector<int> numbers_of(std::string_view text) {
  std::vector<int> layers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto number = parse_number<int>(text.substr(begin, end - begin));
    TRIREME_CHECK(number && *number >= 0 && *number <= max_pieces, ConfigError,
                  "<pipeline_model_parallel_layout> {}: '{}' is not a number of layers", shortened(text),
                  shortened(text.substr(begin, end - begin)));
    layers.push_back(*number);
    begin = end + 1;
  }
  return layers;
}

enum class Unit { group, piece };

/// Returns the end of the group or piece at `begin`, or `begin` if there is none.
std::size_t unit_end(std::string_view text, std::size_t begin, Unit unit) {
  if (unit == Unit::piece) return begin + 1;
  const std::size_t close = text[begin] == '(' ? text.find(')', begin) : std::string_view::npos;
  return close == std::string_view::npos || close == begin + 1 ? begin : close + 1;
}

/// Replaces each group or piece before "*N" by N of them.
std::string unrolled(std::string_view text, Unit unit) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t star = unit_end(text, i, unit);
    int times = 0;
    const char* const number = text.data() + std::min(star + 1, text.size());
    const char* end = number;
    if (star > i && star < text.size() && text[star] == '*') {
      const auto parsed = std::from_chars(number, text.data() + text.size(), times);
      if (parsed.ec == std::errc::result_out_of_range) times = max_pieces + 1;
      if (times >= 0 && *number != '-') end = parsed.ptr;
    }
    const bool repeats = end != number;
    std::string_view repeated = text.substr(i, repeats ? star - i : 1);
    if (repeats && unit == Unit::group) repeated = repeated.substr(1, repeated.size() - 2);
    TRIREME_CHECK(
        !repeats || (times <= max_pieces && result.size() + repeated.size() * static_cast<std::size_t>(times) <=
                                                static_cast<std::size_t>(max_pieces)),
        ConfigError, "<pipeline_model_parallel_layout> {}: there are more than {} pieces", shortened(text), max_pieces);
    for (int n = repeats ? times : 1; n > 0; --n) result += repeated;
    i = repeats ? static_cast<std::size_t>(end - text.data()) : i + 1;
  }
  return result;
}

/// Reads Megatron-LM's form.
std::vector<int> pieces_of(std::string_view text) {
  std::string pieces(text);
  std::erase(pieces, ',');
  pieces = unrolled(unrolled(pieces, Unit::group), Unit::piece);
  TRIREME_CHECK(pieces.find('m') == std::string::npos, ConfigError,
                "<pipeline_model_parallel_layout> {}: m, a multi-token prediction, is not supported; leave it out",
                shortened(text));
  const std::size_t unknown = pieces.find_first_not_of("EtL|");
  TRIREME_CHECK(unknown == std::string::npos, ConfigError,
                "<pipeline_model_parallel_layout> {}: '{}' is not one of E (embedding), t (layer), L (loss) and | (end "
                "of a chunk), nor a repetition by *N or (...)*N",
                shortened(text), shortened(std::string_view(pieces).substr(std::min(unknown, pieces.size()), 1)));
  TRIREME_CHECK(
      std::ranges::count(pieces, 'E') == 1 && pieces.front() == 'E' && std::ranges::count(pieces, 'L') == 1 &&
          pieces.back() == 'L',
      ConfigError,
      "<pipeline_model_parallel_layout> {}: E, the embedding, must appear once, at the beginning, and L, the loss, "
      "once, at the end",
      shortened(text));
  std::vector<int> layers = {0};
  for (const char piece : pieces) {
    if (piece == '|') layers.push_back(0);
    if (piece == 't') ++layers.back();
  }
  return layers;
}

}  // namespace

std::vector<int> layers_of_chunks(std::string_view text) {
  return text.find_first_of("EtmL|(") == std::string_view::npos ? numbers_of(text) : pieces_of(text);
}

}  // namespace trireme::parallel

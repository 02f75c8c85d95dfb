#include "src/data/dataset/split.hpp"

#include <fmt/format.h>

#include <cmath>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"

namespace trireme::data {
namespace {

// With fewer documents, the default 3 % for validation is less than a few documents.
constexpr std::int64_t few_documents = 100;

}  // namespace

const char* name_of(Split split) {
  return std::array{"training", "validation", "test"}[static_cast<std::size_t>(split)];
}

std::array<double, 3> parse_split(std::string_view text) {
  std::array<double, 3> fractions{};
  double sum = 0;
  std::string_view rest = text;
  const auto skip_spaces = [&] { rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size())); };
  bool good = true;
  for (std::size_t i = 0; good; ++i) {
    skip_spaces();
    const double value = take_number<double>(rest).value_or(-1);
    good = i < fractions.size() && std::isfinite(value) && value >= 0;
    if (!good) break;
    sum += fractions[i] = value;
    skip_spaces();
    if (rest.empty()) break;
    good = rest[0] == ',' || rest[0] == '/';
    rest.remove_prefix(1);
  }
  TRIREME_CHECK(good && sum > 0 && std::isfinite(sum), ConfigError,
                "<split> '{}' is not up to three numbers, none negative and not all 0. Try 969,30,1", text);
  for (double& fraction : fractions) fraction /= sum;
  return fractions;
}

std::array<std::int64_t, 4> split_boundaries(const std::array<double, 3>& fractions, std::int64_t count) {
  std::array<std::int64_t, 4> boundaries{};
  double sum = 0;
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    sum += fractions[i];
    boundaries[i + 1] = std::min(static_cast<std::int64_t>(std::nearbyint(sum * static_cast<double>(count))), count);
  }
  return boundaries;
}

DocumentRange documents_of(const TokenStore& store, Split split, const std::array<double, 3>& fractions, SplitBy by) {
  const auto offsets = store.document_offsets();
  const auto which = static_cast<std::size_t>(split);
  if (by == SplitBy::automatic) {
    by = store.documents() < few_documents && !store.learned_ranges() ? SplitBy::tokens : SplitBy::documents;
  }
  DocumentRange range{offsets};
  range.name = fmt::format("{} samples of {}", name_of(split), store.name());
  if (by == SplitBy::documents) {
    const auto boundaries = split_boundaries(fractions, store.documents());
    range.first_document = boundaries[which];
    range.documents = boundaries[which + 1] - boundaries[which];
    range.begin_token = offsets[static_cast<std::size_t>(boundaries[which])];
    range.end_token = offsets[static_cast<std::size_t>(boundaries[which + 1])];
  } else {
    const auto boundaries = split_boundaries(fractions, store.token_count());
    range.begin_token = boundaries[which];
    range.end_token = boundaries[which + 1];
    if (range.tokens() > 0) {
      // The document of the first token, and one past that of the last.
      range.first_document = std::upper_bound(offsets.begin(), offsets.end(), range.begin_token) - offsets.begin() - 1;
      range.documents =
          std::lower_bound(offsets.begin(), offsets.end(), range.end_token) - offsets.begin() - range.first_document;
    }
  }
  return range;
}

}  // namespace trireme::data

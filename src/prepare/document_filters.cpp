#include "src/prepare/document_filters.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::prepare {
namespace {

/// Returns the number of tokens if below `enough`, otherwise any number that is not. Does not read long texts
/// completely.
std::int64_t count_tokens(std::string_view text, const data::Tokenizer& tokenizer, std::int64_t enough) {
  constexpr std::size_t step = 1024;
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; begin < text.size() && static_cast<std::int64_t>(ids.size()) < enough;) {
    std::size_t end = std::min(begin + step, text.size());
    while (end < text.size() && !tokenizer.can_cut(text, end)) ++end;
    const std::string_view part = text.substr(begin, end - begin);
    begin == 0 ? tokenizer.encode(part, ids) : tokenizer.encode_continuation(part, ids);
    begin = end;
  }
  return static_cast<std::int64_t>(ids.size());
}

}  // namespace

std::string DocumentFilters::reason_to_go(std::string& text, const DocumentNames& names) const {
  if (blocked_urls && blocked_urls->contains(names.url.value_or(""))) return R"("blocked url")";
  if (blocked_titles && blocked_titles->contains(names.title.value_or(""))) return R"("blocked title")";
  if (quality) {
    if (const auto broken = quality->apply(text))
      return fmt::format(R"("{}","value":{:.6g})", broken->rule, broken->value);
  }
  if (blocked_words && !blocked_words->find(text).empty()) return R"("blocked word")";
  if (min_tokens > 0) {
    const std::int64_t tokens = count_tokens(text, *tokenizer, min_tokens);
    if (tokens < min_tokens) return fmt::format(R"("short","tokens":{})", tokens);
  }
  if (languages) {
    const auto found = languages->detect(text);
    if (found.wanted_fraction < min_language_fraction) {
      return fmt::format(R"("language","language":"{}","share":{:.2f})", found.main, found.wanted_fraction);
    }
  }
  if (classifier) {
    const double excess = classifier->excess(text);
    if ((excess >= 0) != keeps_class) return fmt::format(R"("classifier","excess":{:.4f})", excess);
  }
  return "";
}

}  // namespace trireme::prepare

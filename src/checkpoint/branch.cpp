#include "src/checkpoint/branch.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::checkpoint {
namespace {

constexpr const char* branch_name = "local.branch";
constexpr const char* base_name = "local.base";

}  // namespace

Branch::Branch(const std::string& text) {
  for (const std::string_view word : split(text, ' ')) {
    const std::size_t colon = word.find(':');
    const std::optional<std::int64_t> begin =
        colon == word.npos ? std::nullopt : parse_number<std::int64_t>(word.substr(colon + 1));
    TRIREME_CHECK(begin && *begin >= 0 && colon > 0, CheckpointError,
                  "'{}' is not an attempt of a run, such as 1a2b3c4d:100", shortened(word));
    add(std::string(word.substr(0, colon)), *begin);
  }
}

std::string Branch::text() const {
  std::string text;
  for (const Attempt& attempt : attempts_) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", attempt.id, attempt.begin);
  }
  return text;
}

bool Branch::passes(const Branch& earlier, std::int64_t iteration) const {
  const std::size_t count = earlier.attempts_.size();
  if (count == 0 || count > attempts_.size()) return false;
  if (!std::equal(earlier.attempts_.begin(), earlier.attempts_.end(), attempts_.begin())) return false;
  return count == attempts_.size() || attempts_[count].begin >= iteration;
}

void put_lineage(Attributes& attributes, const Lineage& lineage) {
  attributes.put(branch_name, lineage.branch.text());
  attributes.put(base_name, lineage.base);
}

std::optional<Lineage> lineage_of(const Attributes& attributes) {
  if (!attributes.contains(branch_name)) return std::nullopt;
  return Lineage{Branch(attributes.get<std::string>(branch_name)), attributes.get<std::int64_t>(base_name)};
}

}  // namespace trireme::checkpoint

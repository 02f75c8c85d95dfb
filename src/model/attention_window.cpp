#include "src/model/attention_window.hpp"

#include <utility>

namespace trireme::model {

AttentionWindow AttentionWindow::every(std::int64_t left, std::int64_t frequency, int layers) {
  std::string pattern;
  for (std::int64_t layer = 1; layer <= layers; ++layer) pattern += layer % frequency == 0 ? '0' : '1';
  return of_layers(left, std::move(pattern));
}

AttentionWindow AttentionWindow::of_layers(std::int64_t left, std::string pattern) {
  if (pattern.find('1') == std::string::npos) return {};
  if (pattern.find('0') == std::string::npos) pattern.clear();
  return {left, std::move(pattern)};
}

}  // namespace trireme::model

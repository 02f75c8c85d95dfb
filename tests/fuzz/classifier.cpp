// Models of fastText, which classify a text.
#include "src/data/quality/classifier.hpp"

#include "src/base/error.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  const fuzz::InputFile file("model", fuzz::text_of(data, size));
  const std::vector<data::ClassLabel> labels{{"a", 0.5}};
  try {
    const data::TextClassifier classifier(file.path(), labels);
    const double excess = classifier.excess("sea ship sails\nthe sea \xFF __label__a");
    fuzz::require(!(excess < -1), "the excess is at least -1");
  } catch (const Error&) {
    return 0;
  }
  return 0;
}

// Lists of addresses, words and titles of what `corpus clean` removes. The first line of the input is looked for in the
// list, the rest.
#include "src/base/error.hpp"
#include "src/data/quality/blocklist.hpp"
#include "src/data/quality/title_list.hpp"
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  std::string_view list = fuzz::text_of(data, size);
  const std::string_view sought = fuzz::take_until(list, "\n");
  const std::string longer = std::string(list) + "\nexample.org\nother/page";
  const bool has_address = data::UrlBlocklist(list).contains(sought);
  fuzz::require(!has_address || data::UrlBlocklist(longer).contains(sought), "more lines block no fewer addresses");
  fuzz::require(data::UrlBlocklist(longer).contains("https://www.Example.org/page"), "subdomains are blocked");
  const std::string word = data::WordBlocklist(list).find(sought);
  fuzz::require(word.size() <= 4 * sought.size() + 4, "a word found fits in the text");
  fuzz::require(word.empty() || !data::WordBlocklist(longer).find(sought).empty(), "more lines block no fewer texts");
  try {
    const data::TitleList titles(list);
    fuzz::require(titles.size() > 0 || !titles.contains(sought), "an empty list has no title");
  } catch (const Error&) {
    return 0;
  }
  return 0;
}

#include "src/data/quality/blocklist.hpp"

#include <algorithm>

#include "src/base/text.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::data {
namespace {

template <class Take>
void for_each_entry(std::string_view lines, const Take& take) {
  for (const std::string_view line : split(lines, '\n')) {
    const std::string_view entry = stripped(line);
    if (!entry.empty() && entry[0] != '#') take(entry);
  }
}

/// An address in parts: https://user@www.Host.org:80/path has "host.org" and "/path", http://[::1]/ has "[::1]" and
/// "/".
struct Address {
  std::string host;
  std::string_view path;
};

Address address_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme != url.npos) url.remove_prefix(scheme + 3);
  const std::size_t end = std::min(url.find_first_of("/?#"), url.size());
  std::string_view host = url.substr(0, end);
  host.remove_prefix(host.rfind('@') + 1);
  host = host.substr(0, host.find(':', host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0));
  Address address{characters_in_lower_case(host), url.substr(end)};
  if (address.host.starts_with("www.")) address.host.erase(0, 4);
  if (address.host.ends_with('.')) address.host.pop_back();
  return address;
}

}  // namespace

UrlBlocklist::UrlBlocklist(std::string_view lines) {
  for_each_entry(lines, [&](std::string_view entry) {
    const Address address = address_of(entry);
    if (address.path.empty() || address.path == "/") {
      domains_.insert(address.host);
    } else {
      addresses_.insert(address.host + std::string(address.path));
    }
  });
}

bool UrlBlocklist::contains(std::string_view url) const {
  const Address address = address_of(url);
  if (addresses_.contains(address.host + std::string(address.path))) return true;
  for (std::string_view domain = address.host; !domain.empty();) {
    if (domains_.contains(domain)) return true;
    domain.remove_prefix(std::min(domain.find('.'), domain.size() - 1) + 1);
  }
  return false;
}

WordBlocklist::WordBlocklist(std::string_view lines) {
  for_each_entry(lines, [&](std::string_view entry) {
    std::string phrase = characters_in_lower_case(entry);
    sizes_.insert(phrase.size());
    phrases_.insert(std::move(phrase));
  });
}

std::string WordBlocklist::find(std::string_view text) const {
  const std::string lower = characters_in_lower_case(text);
  const std::string_view all = lower;
  std::string found;
  bool is_inside_word = false;
  for_each_character(all, [&](Utf8Character c, std::string_view bytes) {
    const auto at = static_cast<std::size_t>(bytes.data() - all.data());
    if (!is_inside_word && found.empty()) {
      for (const std::size_t size : sizes_) {
        if (at + size > all.size()) break;
        const std::string_view rest = all.substr(at + size);
        if (!rest.empty() && is_python_word_character(decode_utf8(rest.data(), rest.data() + rest.size()).code_point)) {
          continue;
        }
        if (phrases_.contains(all.substr(at, size))) found = all.substr(at, size);
      }
    }
    is_inside_word = c.size_bytes != 0 && is_python_word_character(c.code_point);
  });
  return found;
}

}  // namespace trireme::data

#pragma once

#include <functional>
#include <string>

namespace trireme::app {

/// A page, and a text that differs for each version of it (HTTP's entity tag).
struct ServedPage {
  std::string html, tag;
};

/// Serves one page by HTTP/1.1 at `host` (an address of this machine) and `port` (0: a free one) until the process
/// ends. Calls `started` with the page's URL as soon as it can be reached, and `page` for each request.
///
/// A server at a loopback address answers only requests that name this machine: a foreign web page whose own name is
/// made to point here is refused. Throws ConfigError if the address or the port cannot be used.
void serve_page(const std::string& host, int port, const std::function<void(int port)>& started,
                const std::function<ServedPage()>& page);

}  // namespace trireme::app

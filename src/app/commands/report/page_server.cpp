#include "src/app/commands/report/page_server.hpp"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::app {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

/// Returns the name in a request's `Host`, without the port.
std::string host_of(const Request& request) {
  const std::string host(request[http::field::host]);
  const std::size_t colon = host.rfind(':');
  return colon == std::string::npos || host.ends_with(']') ? host : host.substr(0, colon);
}

/// Answers requests for the page.
class Site {
 public:
  Site(const asio::ip::address& address, const std::function<ServedPage()>& page)
      : own_name_(address.is_v6() ? "[" + address.to_string() + "]" : address.to_string()),
        is_local_(address.is_loopback()),
        page_(page) {}

  Response answer(const Request& request) const {
    const std::string host = host_of(request);
    const bool is_own = host == "localhost" || host == own_name_;
    if (is_local_ && !is_own) return text(request, http::status::misdirected_request, "This server has another name.");
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      Response response = text(request, http::status::method_not_allowed, "Only GET and HEAD are answered.");
      response.set(http::field::allow, "GET, HEAD");
      return response;
    }
    if (request.target() != "/") return text(request, http::status::not_found, "There is one page: /");
    ServedPage page = page_();
    const bool is_known = request[http::field::if_none_match] == page.tag;
    Response response(is_known ? http::status::not_modified : http::status::ok, request.version());
    response.set(http::field::etag, page.tag);
    response.set(http::field::cache_control, "no-cache");
    response.set(http::field::content_type, "text/html; charset=utf-8");
    response.set("Content-Security-Policy",
                 "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'");
    return finished(std::move(response), request, is_known ? "" : std::move(page.html));
  }

 private:
  static Response text(const Request& request, http::status status, const std::string& line) {
    Response response(status, request.version());
    response.set(http::field::content_type, "text/plain; charset=utf-8");
    return finished(std::move(response), request, line + "\n");
  }

  static Response finished(Response response, const Request& request, std::string body) {
    response.set("X-Content-Type-Options", "nosniff");
    response.keep_alive(request.keep_alive());
    response.body() = std::move(body);
    if (response.result() != http::status::not_modified) response.prepare_payload();
    if (request.method() == http::verb::head) response.body().clear();  // its length stays in the header
    return response;
  }

  std::string own_name_;
  bool is_local_;
  const std::function<ServedPage()>& page_;
};

/// Connection of a reader: answers its requests one after the other, and ends after 30 idle seconds.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const Site& site) : stream_(std::move(socket)), site_(site) {}

  void read() {
    parser_.emplace().header_limit(16384);
    stream_.expires_after(std::chrono::seconds(30));
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, std::size_t) {
      if (!error) self->write();
    });
  }

 private:
  void write() {
    response_ = site_.answer(parser_->get());
    stream_.expires_after(std::chrono::seconds(30));
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code error, std::size_t) {
      if (!error && !self->response_.need_eof()) self->read();
    });
  }

  beast::tcp_stream stream_;
  const Site& site_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  Response response_;
};

void accept(tcp::acceptor& acceptor, const Site& site) {
  acceptor.async_accept([&](beast::error_code error, tcp::socket socket) {
    if (error) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // no file descriptor is free, for example
    } else {
      std::make_shared<Session>(std::move(socket), site)->read();
    }
    accept(acceptor, site);
  });
}

}  // namespace

void serve_page(const std::string& host, int port, const std::function<void(int port)>& started,
                const std::function<ServedPage()>& page) {
  beast::error_code error;
  const asio::ip::address address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  TRIREME_CHECK(!error, ConfigError, "--host {} is no address: try 127.0.0.1, or 0.0.0.0 for all of this machine",
                host);
  asio::io_context context(1);
  tcp::acceptor acceptor(context);
  const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(port));
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  TRIREME_CHECK(!error, ConfigError, "serving at --host {} --port {} failed: {}. Try another port; 0 takes a free one",
                host, port, error.message());
  const Site site(address, page);
  started(acceptor.local_endpoint().port());
  accept(acceptor, site);
  context.run();
}

}  // namespace trireme::app

// One case on SimGrid: reads a platform and what every actor does from standard input, writes when each message is
// through. Everything is numbered from 0, in the order of the text, which run_simgrid.py writes:
//
//   equal_weights
//   links    bandwidth latency                             one direction of a link each
//   routes   src dst hops link...
//   actors   host steps                                    one for each channel of a rank
//              operations kind peer bytes message          a step; kind s or r: posted together, waited for together
//              seconds                                     then the actor is busy by itself
//
// where each plural is a count followed by so many entries.
//
// When CM02 shares a link, it weighs each flow by 1 / latency of its route, and by 1 where there is none. With
// equal_weights 0 the links have their latencies, and shares are fair where all routes have the same. With 1 every route
// has a latency of 1 s, so that all weigh the same, times the latency of its links by SimGrid's call-back for factors.

#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#include <simgrid/s4u.hpp>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

struct Operation {
  char kind;
  int peer;
  uint64_t bytes;
  int message;
};

struct Step {
  std::vector<Operation> operations;
  double busy_s;
};

struct Link {
  double bandwidth, latency;
  sg4::Link* link;
};

template <class T> static T read()
{
  T value;
  if (not(std::cin >> value)) {
    std::fprintf(stderr, "the case ends too early\n");
    std::exit(2);
  }
  return value;
}

static std::map<int, double> ends;

static void live(int self, const std::vector<Step>& program)
{
  static char payload; // SimGrid wants something to hand over
  for (const Step& step : program) {
    std::vector<sg4::CommPtr> posted;
    std::vector<char*> received(step.operations.size(), nullptr);
    for (size_t i = 0; i < step.operations.size(); i++) {
      const auto& [kind, peer, bytes, message] = step.operations[i];
      const int src = kind == 's' ? self : peer, dst = kind == 's' ? peer : self;
      auto* mailbox = sg4::Mailbox::by_name(std::to_string(src) + " to " + std::to_string(dst));
      posted.push_back(kind == 's' ? mailbox->put_async(&payload, bytes) : mailbox->get_async<char>(&received[i]));
    }
    sg4::Comm::wait_all(posted);
    for (size_t i = 0; i < posted.size(); i++)
      if (step.operations[i].kind == 's')
        ends[step.operations[i].message] = posted[i]->get_finish_time();
    if (step.busy_s > 0)
      sg4::this_actor::sleep_for(step.busy_s);
  }
}

int main(int argc, char* argv[])
{
  sg4::Engine engine(&argc, argv);
  auto* zone               = sg4::create_full_zone("cluster");
  const bool equal_weights = read<int>();

  std::vector<Link> links(read<int>());
  for (size_t i = 0; i < links.size(); i++) {
    links[i].bandwidth = read<double>();
    links[i].latency   = read<double>();
    links[i].link      = zone->create_link("link " + std::to_string(i), links[i].bandwidth)
                        ->set_latency(equal_weights ? 0.0 : links[i].latency)
                        ->seal();
  }
  const sg4::Link* weight = nullptr;
  if (equal_weights)
    weight = zone->create_link("weight", 1e15) // a fat pipe is shared by no one
                 ->set_latency(1.0)
                 ->set_sharing_policy(sg4::Link::SharingPolicy::FATPIPE)
                 ->seal();

  std::map<std::string, sg4::Host*> hosts;
  auto host = [&](const std::string& name) {
    if (not hosts.count(name))
      hosts[name] = zone->create_host(name, 1e9)->seal();
    return hosts[name];
  };
  std::map<std::pair<std::string, std::string>, double> latencies;
  for (int routes = read<int>(); routes > 0; routes--) {
    const auto src = read<std::string>(), dst = read<std::string>();
    std::vector<sg4::LinkInRoute> route;
    for (int hops = read<int>(); hops > 0; hops--) {
      const Link& link = links.at(read<int>());
      latencies[{src, dst}] += link.latency;
      route.emplace_back(link.link);
    }
    if (weight)
      route.emplace_back(weight);
    zone->add_route(host(src)->get_netpoint(), host(dst)->get_netpoint(), nullptr, nullptr, route, false);
  }
  const int actors = read<int>();
  std::vector<std::string> places(actors);
  std::vector<std::vector<Step>> programs(actors);
  for (int actor = 0; actor < actors; actor++) {
    places[actor] = read<std::string>();
    host(places[actor]);
    programs[actor].resize(read<int>());
    for (Step& step : programs[actor]) {
      step.operations.resize(read<int>());
      for (auto& [kind, peer, bytes, message] : step.operations) {
        kind    = read<char>();
        peer    = read<int>();
        bytes   = read<uint64_t>();
        message = read<int>();
      }
      step.busy_s = read<double>();
    }
  }
  zone->seal();
  if (equal_weights)
    zone->get_network_model()->set_lat_factor_cb(
        [&](double, const sg4::Host* src, const sg4::Host* dst, const auto&, const auto&) {
          return latencies.at({src->get_name(), dst->get_name()});
        });
  for (int actor = 0; actor < actors; actor++)
    sg4::Actor::create("actor " + std::to_string(actor), hosts[places[actor]], live, actor, programs[actor]);
  engine.run();
  for (const auto& [message, end] : ends)
    std::printf("%d %.17g\n", message, end);
  return 0;
}

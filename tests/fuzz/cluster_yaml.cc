// Clusters: YAML that people write.

#include "trireme/cluster/cluster.h"
#include "trireme/cluster/link_graph.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Cluster> cluster = parse_cluster(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(cluster) || !fuzz::is_accepted(verify_cluster(cluster.value()))) return 0;
  fuzz::expect_text_form(cluster.value(), parse_cluster);
  TRIREME_CHECK(parse_cluster(to_text(cluster.value())).value() == cluster.value(),
                "a cluster has changed");
  LinkGraph links(cluster.value());
  TRIREME_CHECK(links.num_devices() == 1 || !links.path(0, links.num_devices() - 1).empty(),
                "devices that no path joins");
  return 0;
}

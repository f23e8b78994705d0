// One schedule, or more, for each rule of verify_schedule, that breaks that rule first.
#include "trireme/schedule/verify_rules.h"

#include <set>

#include <gtest/gtest.h>

#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

// Breaks one rule: `schedule` is the text of a schedule that all rules above it accept.
struct Breach {
  std::string_view rule;
  std::string_view schedule;
  std::string_view message;
};

const Breach kBreaches[] = {
    {"ranks",
     "schedule x stages=2 micro-batches=1,1\n"
     "rank 0: F0 B0 SC0 U\n",
     "the number of ranks listed is 1: 2 stages and 2 replicas make 4"},
    {"index-range",
     "schedule x stages=1 micro-batches=2\n"
     "rank 0: F0 F1 F2 B0 B1 B2 SC0 U\n",
     "rank 0 lists F2, but its number of micro-batches is 2"},
    {"index-range",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 F0.1 B0 SC0 U\n",
     "rank 0 lists F0.1, but its number of chunks is 1"},
    {"index-range",
     "schedule x stages=1 micro-batches=1,1 buckets=1\n"
     "rank 0: F0 B0 SC0 AR0 U\n"
     "rank 1: F0 B0 SC0 AR0 AR1 U\n",
     "rank 1 lists AR1, but its number of gradient buckets is 1"},
    {"index-range",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 B0 SC0 SC2 U\n",
     "rank 0 lists SC2, but its number of scalar exchanges is 2"},
    {"legal-here",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: RA0 F0 SA0 RG0 B0 SC0 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 U\n",
     "rank 0 lists RA0, but nothing comes before the first stage"},
    {"legal-here",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 U\n"
     "rank 1: RA0 F0 RG0 B0 SG0 SC0 U\n",
     "rank 1 lists RG0, but nothing comes after the last stage"},
    {"legal-here",
     "schedule x stages=3 micro-batches=1 tied=0+2\n"
     "rank 0: F0 SA0 RG0 B0 SC0 TR0 U\n"
     "rank 1: RA0 F0 SA0 RG0 B0 SG0 SC0 TR0 U\n"
     "rank 2: RA0 F0 B0 SG0 SC0 TR0 U\n",
     "rank 1 lists TR0, but its stage does not hold that tied group"},
    {"legal-here",
     "schedule x stages=1 micro-batches=1 evaluation\n"
     "rank 0: F0 B0 SC0\n",
     "rank 0 lists B0, but an evaluation has no gradients"},
    {"legal-here",
     "schedule x stages=1 micro-batches=1 evaluation\n"
     "rank 0: Fc0 SC0\n",
     "rank 0 lists Fc0, but an evaluation has no gradients"},
    {"legal-here",
     "schedule x stages=1 chunks=2 micro-batches=1\n"
     "rank 0: F0 SA0 F0.1 B0.1 B0 SC0 U\n",
     "rank 0 lists SA0, but the chunk at the other side is on the same rank, where nothing is "
     "sent"},
    {"once",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 B0 B0 SC0 U\n",
     "rank 0 lists B0 twice, at positions 1 and 2"},
    {"forwards",
     "schedule x stages=1 micro-batches=4\n"
     "rank 0: F0 F1 F3 B0 B1 B2 B3 SC0 U\n",
     "rank 0 misses the forward of micro-batch 2 (3 of 4 forwards seen)"},
    {"forwards",
     "schedule x stages=2 chunks=2 micro-batches=1 evaluation\n"
     "rank 0: F0 SA0 RA0.1 F0.1 SA0.1 SC0\n"
     "rank 1: RA0 F0 SA0 RA0.1 SC0\n",
     "rank 1 misses the forward of micro-batch 0, chunk 1 (1 of 2 forwards seen)"},
    {"backwards",
     "schedule x stages=2 micro-batches=4\n"
     "rank 0: F0 SA0 F1 SA1 F2 SA2 F3 SA3 RG0 B0 RG1 B1 RG2 B2 RG3 B3 SC0 U\n"
     "rank 1: RA0 F0 RA1 F1 RA2 F2 RA3 F3 B0 SG0 B1 SG1 B2 SG2 SG3 SC0 U\n",
     "rank 1 misses the backward of micro-batch 3 (4 of 4 forwards seen)"},
    {"backwards",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 I0 SC0 U\n",
     "rank 0 misses W of micro-batch 0"},
    {"backwards",
     "schedule x stages=1 chunks=2 micro-batches=1\n"
     "rank 0: F0 F0.1 W0.1 B0 SC0 U\n",
     "rank 0 misses I of micro-batch 0, chunk 1"},
    {"one-of-a-kind",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 Fc0 R0 B0 SC0 U\n",
     "rank 0 lists both F0 and Fc0, which do the same work"},
    {"one-of-a-kind",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 B0 I0 W0 SC0 U\n",
     "rank 0 lists both B0 and I0, which do the same work"},
    {"recomputations",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: Fc0 B0 SC0 U\n",
     "rank 0 lists Fc0 without R0, which its backward needs"},
    {"recomputations",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 R0 B0 SC0 U\n",
     "rank 0 lists R0, but F0 keeps what it would make"},
    {"forward-before-backward",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: I0 F0 W0 SC0 U\n",
     "rank 0 runs I0 before F0"},
    {"recompute-between",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: R0 Fc0 B0 SC0 U\n",
     "rank 0 runs R0 before Fc0"},
    {"recompute-between",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: Fc0 I0 R0 W0 SC0 U\n",
     "rank 0 runs I0 before R0"},
    {"weights-after-inputs",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 W0 I0 SC0 U\n",
     "rank 0 runs W0 before I0"},
    {"chunks-in-order",
     "schedule x stages=1 chunks=2 micro-batches=1\n"
     "rank 0: F0.1 F0 B0.1 B0 SC0 U\n",
     "rank 0 runs F0.1 before F0"},
    {"chunks-in-order",
     "schedule x stages=2 chunks=2 placement=v micro-batches=1\n"
     "rank 0: F0 SA0 RA0.1 F0.1 B0.1 SG0.1 RG0 B0 SC0 U\n"
     "rank 1: RA0 F0 F0.1 SA0.1 I0 SG0 RG0.1 B0.1 W0 SC0 U\n",
     "rank 1 runs I0 before B0.1"},
    {"forward-before-backward",
     "schedule x stages=1 micro-batches=2\n"
     "rank 0: F0 B1 F1 B0 SC0 U\n",
     "rank 0 runs B1 before F1"},
    {"transfers-match",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 U\n"
     "rank 1: F0 B0 SG0 SC0 U\n",
     "rank 0 lists SA0, but rank 1 misses the matching RA0"},
    {"transfers-match",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 U\n"
     "rank 1: RA0 F0 B0 SC0 U\n",
     "rank 0 lists RG0, but rank 1 misses the matching SG0"},
    {"receive-before-forward",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 U\n"
     "rank 1: F0 RA0 B0 SG0 SC0 U\n",
     "rank 1 runs F0 without RA0 before it"},
    {"receive-before-forward",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 RG0 B0 SC0 U\n"
     "rank 1: F0 B0 SG0 SC0 U\n",
     "rank 1 runs F0 without RA0 before it"},
    {"send-after-forward",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: SA0 F0 RG0 B0 SC0 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 U\n",
     "rank 0 runs SA0 before F0 has made its data"},
    {"receive-before-backward",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 B0 RG0 SC0 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 U\n",
     "rank 0 runs B0 without RG0 before it"},
    {"receive-before-forward",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 U\n"
     "rank 1: Fc0 RA0 R0 B0 SG0 SC0 U\n",
     "rank 1 runs Fc0 without RA0 before it"},
    {"receive-before-backward",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 I0 RG0 W0 SC0 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 U\n",
     "rank 0 runs I0 without RG0 before it"},
    {"send-after-backward",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 U\n"
     "rank 1: RA0 F0 SG0 I0 W0 SC0 U\n",
     "rank 1 runs SG0 before I0 has made its data"},
    {"send-after-backward",
     "schedule x stages=2 micro-batches=1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 U\n"
     "rank 1: RA0 F0 SG0 B0 SC0 U\n",
     "rank 1 runs SG0 before B0 has made its data"},
    {"transfer-order",
     "schedule x stages=2 micro-batches=2\n"
     "rank 0: F0 F1 SA1 SA0 RG0 B0 RG1 B1 SC0 U\n"
     "rank 1: RA0 F0 RA1 F1 B0 SG0 B1 SG1 SC0 U\n",
     "rank 0 sends SA1 where rank 1 expects RA0 (transfer 1 of 2)"},
    {"losses",
     "schedule x stages=1 micro-batches=1,1\n"
     "rank 0: F0 B0 SC0 U\n"
     "rank 1: F0 B0 U\n",
     "rank 1 misses SC0 (losses and item counts of all ranks)"},
    {"losses",
     "schedule x stages=1 micro-batches=2\n"
     "rank 0: F0 SC0 F1 B0 B1 U\n",
     "rank 0 issues SC0 before F1"},
    {"losses",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: SC0 Fc0 R0 B0 U\n",
     "rank 0 issues SC0 before Fc0"},
    {"tied-reductions",
     "schedule x stages=2 micro-batches=1 tied=0+1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 TR0 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 U\n",
     "rank 1 misses TR0 (tied gradients of group 0 over ranks 0, 1)"},
    {"tied-reductions",
     "schedule x stages=2 micro-batches=1 tied=0+1\n"
     "rank 0: F0 SA0 RG0 TR0 B0 SC0 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 TR0 U\n",
     "rank 0 issues TR0 before B0"},
    {"bucket-reductions",
     "schedule x stages=1 micro-batches=1,1 buckets=2\n"
     "rank 0: F0 B0 SC0 AR0 AR1 U\n"
     "rank 1: F0 B0 SC0 AR0 U\n",
     "rank 1 misses AR1 (gradient bucket 1 over ranks 0, 1)"},
    {"bucket-reductions",
     "schedule x stages=1 micro-batches=1,2 buckets=1\n"
     "rank 0: F0 B0 SC0 AR0 U\n"
     "rank 1: F0 B0 F1 AR0 B1 SC0 U\n",
     "rank 1 issues AR0 before B1"},
    {"bucket-reductions",
     "schedule x stages=1 micro-batches=1,1 buckets=1\n"
     "rank 0: F0 B0 SC0 AR0 U\n"
     "rank 1: F0 I0 AR0 W0 SC0 U\n",
     "rank 1 issues AR0 before W0"},
    {"tied-before-buckets",
     "schedule x stages=2 micro-batches=1,0 buckets=1,1 tied=0+1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 AR0 TR0 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 TR0 AR0 U\n"
     "rank 2: SC0 TR0 AR0 U\n"
     "rank 3: SC0 TR0 AR0 U\n",
     "rank 0 issues AR0 before TR0"},
    {"norms",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 B0 SC0 SC1 U\n",
     "rank 0 lists SC1, but the schedule does not clip"},
    {"norms",
     "schedule x stages=1 micro-batches=1 clip-norm\n"
     "rank 0: F0 B0 SC0 U\n",
     "rank 0 misses SC1 (squared gradient norms of all ranks)"},
    {"norms",
     "schedule x stages=1 micro-batches=1,1 buckets=1 clip-norm\n"
     "rank 0: F0 B0 SC0 SC1 AR0 U\n"
     "rank 1: F0 B0 SC0 AR0 SC1 U\n",
     "rank 0 issues SC1 before AR0"},
    {"norms",
     "schedule x stages=2 micro-batches=1 tied=0+1 clip-norm\n"
     "rank 0: F0 SA0 RG0 B0 SC0 TR0 SC1 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 SC1 TR0 U\n",
     "rank 1 issues SC1 before TR0"},
    {"norms",
     "schedule x stages=1 micro-batches=1 clip-norm\n"
     "rank 0: F0 B0 SC1 SC0 U\n",
     "rank 0 issues SC1 before SC0"},
    {"collective-order",
     "schedule x stages=1 micro-batches=1,1 buckets=2\n"
     "rank 0: F0 B0 SC0 AR0 AR1 U\n"
     "rank 1: F0 B0 SC0 AR1 AR0 U\n",
     "rank 1 issues AR1 where rank 0 issues AR0"},
    {"one-weight-version",
     "schedule x stages=1 micro-batches=2\n"
     "rank 0: F0 B0 F1 U B1 SC0\n",
     "rank 0 runs U between F1 and B1, which must see the same weights"},
    {"one-weight-version",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: Fc0 R0 I0 U W0 SC0\n",
     "rank 0 runs U between Fc0 and W0, which must see the same weights"},
    {"update",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 B0 SC0\n",
     "rank 0 misses U (update of the weights)"},
    {"update",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 B0 U SC0\n",
     "rank 0 runs SC0 after U, which must come last"},
    {"update",
     "schedule x stages=1 micro-batches=2\n"
     "rank 0: F0 B0 U F1 B1 SC0\n",
     "rank 0 runs F1 after U, which must come last"},
    {"index-range",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 B0 SC0 U U-\n",
     "rank 0 lists U-, but found= is not given"},
    {"index-range",
     "schedule x stages=1 micro-batches=1\n"
     "rank 0: F0 B0 F0+ SC0 U\n",
     "rank 0 lists F0+, but ahead= is not given"},
    {"borders",
     "schedule x stages=2 micro-batches=2 versions=2 found=1,0 ahead=1,0\n"
     "rank 0: F0 F1 SA1 RG0 B0 U- F0+ SA0+ RG1 B1 SC0\n"
     "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 U-\n",
     "rank 0 lists F0, but the step before has done it, as found= says"},
    {"borders",
     "schedule x stages=2 micro-batches=2 versions=2 found=1,0 ahead=1,0\n"
     "rank 0: F1 SA1 RG0 B0 U- F0+ SA0+ F1+ SA1+ RG1 B1 SC0\n"
     "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 U-\n",
     "rank 0 lists F1+, but that is further than ahead= says"},
    {"borders",
     "schedule x stages=1 micro-batches=1 versions=2 ahead=1\n"
     "rank 0: F0 B0 F0+ B0+ SC0\n",
     "rank 0 lists B0+, but only forwards run ahead"},
    {"borders",
     "schedule x stages=1 micro-batches=1 versions=2 found=0\n"
     "rank 0: SC0- F0 B0 U- SC0 U\n",
     "rank 0 lists SC0-, but only AR, SC1 and U are left to the next step"},
    {"borders",
     "schedule x stages=1 micro-batches=1 versions=2 found=0 updates-at-end\n"
     "rank 0: F0 B0 U- SC0 U\n",
     "rank 0 lists U-, but updates-at-end leaves nothing to the next step"},
    {"forwards",
     "schedule x stages=2 micro-batches=2 versions=2 found=1,0 ahead=1,0\n"
     "rank 0: F1 SA1 RG0 B0 U- RG1 B1 SC0\n"
     "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 U-\n",
     "rank 0 misses F0+, which ahead= promises"},
    {"transfers-match",
     "schedule x stages=2 micro-batches=2 versions=2 found=1,0 ahead=1,0\n"
     "rank 0: F1 SA1 RG0 B0 U- F0+ RG1 B1 SC0\n"
     "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 U-\n",
     "rank 0 misses SA0+, which the next step receives"},
    {"transfer-order",
     "schedule x stages=2 micro-batches=2 versions=2 found=1,0 ahead=1,0\n"
     "rank 0: F1 SA1 RG0 B0 U- F0+ SA0+ RG1 B1 SC0\n"
     "rank 1: RA1 RA0 F0 B0 SG0 F1 B1 SG1 SC0 U-\n",
     "rank 0 sends SA0 where rank 1 expects RA1 (transfer 1 of 3)"},
    {"bucket-reductions",
     "schedule x stages=1 micro-batches=1,1 buckets=1 versions=2 found=0 ahead=0\n"
     "rank 0: AR0- F0 B0 SC0 AR0 U-\n"
     "rank 1: AR0- F0 B0 SC0 AR0 U-\n",
     "rank 0 lists both AR0 and AR0-: of a step between others one comes"},
    {"norms",
     "schedule x stages=1 micro-batches=1 clip-norm versions=2 found=0\n"
     "rank 0: F0 B0 U- SC0 SC1 U\n",
     "rank 0 misses SC1-, which clips the batch before"},
    {"norms",
     "schedule x stages=1 micro-batches=1,1 buckets=1 clip-norm versions=2 found=0 ahead=0\n"
     "rank 0: SC1- AR0- F0 B0 SC0 U-\n"
     "rank 1: SC1- AR0- F0 B0 SC0 U-\n",
     "rank 0 issues SC1- before AR0-"},
    {"norms",
     "schedule x stages=1 micro-batches=1 clip-norm versions=2 ahead=0\n"
     "rank 0: F0 B0 SC0 SC1\n",
     "rank 0 lists SC1, but leaves its update to the next step"},
    {"one-weight-version",
     "schedule x stages=2 micro-batches=2 versions=2 found=1,0 ahead=1,0\n"
     "rank 0: F1 SA1 RG0 B0 F0+ SA0+ U- RG1 B1 SC0\n"
     "rank 1: RA0 F0 B0 SG0 RA1 F1 B1 SG1 SC0 U-\n",
     "rank 0 runs F0+ before U-, which makes its weights"},
    {"update",
     "schedule x stages=1 micro-batches=1 versions=2 found=0\n"
     "rank 0: F0 B0 SC0 U\n",
     "rank 0 misses U- (update of the weights, of the step before)"},
    {"update",
     "schedule x stages=1 micro-batches=1 clip-norm versions=2 found=0\n"
     "rank 0: F0 B0 U- SC1- SC0 SC1 U\n",
     "rank 0 runs U- before SC1-"},
    {"update",
     "schedule x stages=1 micro-batches=1 versions=2 ahead=0\n"
     "rank 0: F0 B0 SC0 U\n",
     "rank 0 lists U, which ahead= leaves to the next step"},
    {"update",
     "schedule x stages=1 micro-batches=1 versions=2 ahead=0 updates-at-end\n"
     "rank 0: F0 B0 SC0\n",
     "rank 0 misses U (update of the weights)"},
    {"bucket-reductions",
     "schedule x stages=1 micro-batches=1,1 buckets=1 versions=2 ahead=0 updates-at-end\n"
     "rank 0: F0 B0 SC0 U\n"
     "rank 1: F0 B0 SC0 U\n",
     "rank 0 misses AR0 (gradient bucket 0 over ranks 0, 1)"},
    {"shape", "schedule x stages=2 micro-batches=1,1 buckets=1,1 tied=0+1 tied-buckets=1\n",
     "tied-buckets= has 1 numbers for 2 stages"},
    {"shape", "schedule x stages=3 micro-batches=1,1 buckets=1,1,1 tied=0+1 tied-buckets=1,1,1\n",
     "stage 2 has 1 tied buckets: of its 1 there are 0 to 0"},
    {"shape", "schedule x stages=2 micro-batches=1 updates-at-end\n",
     "updates-at-end is of schedules with versions=2, whose steps overlap"},
    {"tied-before-buckets",
     "schedule x stages=2 micro-batches=1,1 buckets=2,1 tied=0+1 tied-buckets=1,1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 AR0 AR1 TR0 U\n"
     "rank 1: RA0 F0 B0 SG0 SC0 TR0 AR0 U\n"
     "rank 2: F0 SA0 RG0 B0 SC0 AR0 AR1 TR0 U\n"
     "rank 3: RA0 F0 B0 SG0 SC0 TR0 AR0 U\n",
     "rank 0 issues AR1 before TR0"},
    {"shape", "schedule x stages=2 micro-batches=1,1 row-tables=1\n",
     "row-tables= has 1 numbers for 2 stages"},
    {"shape", "schedule x stages=1 micro-batches=1 row-tables=1\n",
     "stage 0 has 1 row tables: with 1 replicas there are 0 to 0"},
    {"index-range",
     "schedule x stages=1 micro-batches=1,1\n"
     "rank 0: F0 SX0 B0 SC0 U\n"
     "rank 1: F0 SX0 B0 SC0 U\n",
     "rank 0 lists SX0, but its number of row exchanges is 0"},
    {"legal-here",
     "schedule x stages=1 micro-batches=1,1 row-tables=1 evaluation\n"
     "rank 0: F0 SX0 SC0\n"
     "rank 1: F0 SX0 SC0\n",
     "rank 0 lists SX0, but an evaluation has no gradients"},
    {"row-exchanges",
     "schedule x stages=1 micro-batches=1,1 row-tables=1\n"
     "rank 0: F0 B0 SC0 SX1 SX2 U\n"
     "rank 1: F0 B0 SC0 SX1 SX2 U\n",
     "rank 0 misses SX0 (numbers of rows that were read, over ranks 0, 1)"},
    {"row-exchanges",
     "schedule x stages=1 micro-batches=2,2 row-tables=1\n"
     "rank 0: F0 SX0 F1 B0 B1 SC0 SX1 SX2 U\n"
     "rank 1: F0 SX0 F1 B0 B1 SC0 SX1 SX2 U\n",
     "rank 0 issues SX0 before F1"},
    {"row-exchanges",
     "schedule x stages=1 micro-batches=1,1 row-tables=1\n"
     "rank 0: F0 SX0 B0 SC0 SX2 U\n"
     "rank 1: F0 SX0 B0 SC0 SX2 U\n",
     "rank 0 misses SX1 (rows that were read, over ranks 0, 1)"},
    {"row-exchanges",
     "schedule x stages=1 micro-batches=1,1 row-tables=1\n"
     "rank 0: F0 SX0 SX1 SX2 B0 SC0 U\n"
     "rank 1: F0 SX0 SX1 SX2 B0 SC0 U\n",
     "rank 0 issues SX2 before B0"},
    {"row-exchanges",
     "schedule x stages=1 micro-batches=1,1 row-tables=2\n"
     "rank 0: F0 SX0 B0 SC0 SX2 SX1 SX3 U\n"
     "rank 1: F0 SX0 B0 SC0 SX2 SX1 SX3 U\n",
     "rank 0 issues SX2 before SX1"},
    {"row-exchanges",
     "schedule x stages=1 micro-batches=1,1 row-tables=2\n"
     "rank 0: F0 SX0 B0 SC0 SX1 SX2 U\n"
     "rank 1: F0 SX0 B0 SC0 SX1 SX2 U\n",
     "rank 0 misses SX3 (gradient rows of table 1 over ranks 0, 1)"},
    {"norms",
     "schedule x stages=1 micro-batches=1,1 row-tables=1 clip-norm\n"
     "rank 0: F0 SX0 SX1 B0 SC0 SC1 SX2 U\n"
     "rank 1: F0 SX0 SX1 B0 SC0 SC1 SX2 U\n",
     "rank 0 issues SC1 before SX2"},
    {"collective-order",
     "schedule x stages=1 micro-batches=1,1 row-tables=2\n"
     "rank 0: F0 SX0 SX1 B0 SC0 SX2 SX3 U\n"
     "rank 1: F0 SX0 SX1 B0 SC0 SX3 SX2 U\n",
     "rank 1 issues SX3 where rank 0 issues SX2"},
    {"deadlock",
     "schedule x stages=2 micro-batches=1,1 buckets=1,1 tied=0+1\n"
     "rank 0: F0 SA0 RG0 B0 SC0 TR0 AR0 U\n"
     "rank 1: RA0 F0 B0 SC0 TR0 AR0 SG0 U\n"
     "rank 2: F0 SA0 RG0 B0 SC0 TR0 AR0 U\n"
     "rank 3: RA0 F0 B0 SC0 TR0 AR0 SG0 U\n",
     "deadlock at look-ahead 2: rank 0 waits at RG0 until rank 1 reaches SG0, rank 1 waits at AR0 "
     "until rank 0 reaches TR0"},
    {"deadlock",
     "schedule x stages=2 micro-batches=1 clip-norm\n"
     "rank 0: F0 SA0 RG0 B0 SC0 SC1 U\n"
     "rank 1: RA0 F0 B0 SC0 SC1 SG0 U\n",
     "deadlock at look-ahead 2: rank 0 waits at RG0 until rank 1 reaches SG0, rank 1 waits at SC1 "
     "until rank 0 reaches SC0"},
};

std::string first_broken_rule(const Schedule& schedule) {
  const ScheduleIndex index(schedule);
  for (const ScheduleRule& rule : schedule_rules()) {
    if (!rule.check(index).ok()) return std::string(rule.name);
  }
  return "none";
}

std::string message_of(const Status& status) { return status.ok() ? "" : status.error().message; }

TEST(VerifyRules, NamesWhatBreaksEachRule) {
  for (const Breach& breach : kBreaches) {
    const Result<Schedule> schedule = parse_schedule(breach.schedule);
    ASSERT_TRUE(schedule.ok()) << schedule.error().message;
    EXPECT_EQ(message_of(verify_schedule(schedule.value())), breach.message);
    EXPECT_EQ(first_broken_rule(schedule.value()), breach.rule) << breach.schedule;
  }
}

TEST(VerifyRules, HasABreachForEachRule) {
  std::set<std::string_view> tested = {"shape"};  // below
  for (const Breach& breach : kBreaches) tested.insert(breach.rule);
  for (const ScheduleRule& rule : schedule_rules()) EXPECT_TRUE(tested.contains(rule.name));
  EXPECT_EQ(tested.size(), schedule_rules().size());
}

}  // namespace
}  // namespace trireme

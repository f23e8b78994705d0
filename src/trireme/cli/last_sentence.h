// What ends a program when the machine refuses it memory, a thread or a file: one sentence and exit
// status 1, where std::terminate would print the name of an exception and leave a core.
#pragma once

namespace trireme {

// From now on, of any thread: `program` is in front of the sentence, and lives for ever.
void end_with_a_sentence(const char* program);

}  // namespace trireme

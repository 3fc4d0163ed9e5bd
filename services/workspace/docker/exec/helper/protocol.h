/*
 * What the instance and the helper of one exec say to each other, over the helper's standard
 * input and output.
 *
 * A frame is a type (one byte), a length (four bytes) and so many bytes of payload; all numbers
 * are big endian. The instance speaks first. Times are nanoseconds of the helper's CLOCK_BOOTTIME.
 *
 * The instance says:
 *   HELLO    version u32, then the path of the directory that should be mounted
 *                                          first; answered by READY
 *   START    until u64, terminal u8, columns u16, rows u16, output window u32, number of arguments
 *            u32, number of variables u32, then texts, each ended by a zero byte: the directory, the
 *            arguments, the variables (NAME=value)
 *   STDIN    bytes                         no more than STDIN_WINDOW and what WROTE gave back
 *   CLOSE                                  end of standard input
 *   RESIZE   columns u16, rows u16
 *   SIGNAL   number u32                    for the command's process group
 *   MARK                                   answered by MARKED
 *   REAP                                   answered by REAPED
 *   READ     count u32                     so much output was taken: so much more may come
 *   UNTIL    until u64                     the command may live until then; only ever later
 *   KILL                                   kill all of it
 *   End of file means KILL, too, and nothing more is said.
 *
 * The helper says:
 *   READY    version u32, now u64, device u64, inode u64
 *                                          the last two of what that path leads to, zeros if nowhere
 *   STARTED  process id u32
 *   FAILED   errno u32                     the command was not started; nothing follows
 *   STDOUT, STDERR  bytes                  no more than the output window and what READ gave back
 *   WROTE    count u32                     so much input was taken by the command
 *   REFUSED                                the command has closed its standard input
 *   MARKED   count u32                     processes that are older than the mark
 *   REAPED   count u32                     processes that were killed
 *   DEAD     wait status u32, killed u8, out of memory u8
 *                                          every process is dead; output may follow
 *   END                                    last, after all output
 *
 * Neither side waits for room with a frame in its hands that the other one needs: the windows
 * bound what is on its way, and both always read.
 */
#ifndef MOORAGE_PROTOCOL_H
#define MOORAGE_PROTOCOL_H

enum { PROTOCOL_VERSION = 2 };

enum { FRAME_HEADER = 5, LONGEST_FRAME = 16 << 20, LONGEST_PIECE = 64 << 10, STDIN_WINDOW = 256 << 10 };

enum order {
    HELLO = 'H', START = 'S', STDIN = 'I', CLOSE = 'C', RESIZE = 'Z', SIGNAL = 'G',
    MARK = 'M', REAP = 'R', READ = 'W', UNTIL = 'U', KILL = 'K',
};

enum report {
    READY = 'h', STARTED = 's', FAILED = 'f', STDOUT = 'o', STDERR = 'e', WROTE = 'w',
    REFUSED = 'c', MARKED = 'm', REAPED = 'r', DEAD = 'd', END = 'x',
};

#endif

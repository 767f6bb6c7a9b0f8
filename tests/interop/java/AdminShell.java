import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin sub-commands in one JVM. Each line of standard input is one command, its arguments separated by U+001F; the answer is
 * a line with a byte count, then that many bytes: all that the command printed.
 */
public class AdminShell {
    public static void main(String[] none) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, "UTF-8");
            System.setOut(capture);
            System.setErr(capture);
            try {
                MQAdminStartup.main0(line.split("\u001f"), null);
            } catch (Throwable e) {
                e.printStackTrace(capture);
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
            byte[] bytes = printed.toByteArray();
            out.println(bytes.length);
            out.write(bytes);
            out.flush();
        }
        System.exit(0);
    }
}

import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Keeps remote segments in a folder. A read takes as long as one from an object store, and fails if the broker interrupts it. */
public class SlowStore implements RemoteStorageManager {
    private Path root;
    private long delay;

    public void configure(Map<String, ?> settings) {
        root = Paths.get(String.valueOf(settings.get("root")));
        delay = Long.parseLong(String.valueOf(settings.get("delay")));
    }

    private Path at(RemoteLogSegmentMetadata segment, String part) {
        return root.resolve(segment.remoteLogSegmentId().id().toString() + "." + part);
    }

    private void copy(Path from, RemoteLogSegmentMetadata segment, String part) throws IOException {
        Files.copy(from, at(segment, part), StandardCopyOption.REPLACE_EXISTING);
    }

    public Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData data) throws RemoteStorageException {
        try {
            Files.createDirectories(root);
            copy(data.logSegment(), segment, "log");
            copy(data.offsetIndex(), segment, "OFFSET");
            copy(data.timeIndex(), segment, "TIMESTAMP");
            copy(data.producerSnapshotIndex(), segment, "PRODUCER_SNAPSHOT");
            if (data.transactionIndex().isPresent()) copy(data.transactionIndex().get(), segment, "TRANSACTION");
            byte[] epochs = new byte[data.leaderEpochIndex().remaining()];
            data.leaderEpochIndex().get(epochs);
            Files.write(at(segment, "LEADER_EPOCH"), epochs);
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
        return Optional.empty();
    }

    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        try {
            Thread.sleep(delay);
            InputStream in = Files.newInputStream(at(segment, "log"));
            in.skip(start);
            return new BufferedInputStream(in);
        } catch (InterruptedException e) {
            System.out.println("SlowStore was interrupted");
            throw new RemoteStorageException("interrupted", e);
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end) throws RemoteStorageException {
        return fetchLogSegment(segment, start);
    }

    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType kind) throws RemoteStorageException {
        try {
            Path path = at(segment, kind.name());
            return Files.exists(path) ? Files.newInputStream(path) : new ByteArrayInputStream(new byte[0]);
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) { }

    public void close() { }
}
